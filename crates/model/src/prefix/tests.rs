use super::*;
use crate::kv::pages_for;

/// Pools, a cache over them, and texts that are letters.
struct World {
    pools: [PagePool; 1],
    cache: PrefixCache,
}

fn ids(text: &str) -> Vec<TokenId> {
    text.bytes().map(|byte| TokenId(byte.into())).collect()
}

impl World {
    fn new(pages: usize) -> Self {
        Self {
            pools: [PagePool::new(pages)],
            cache: PrefixCache::new(1),
        }
    }

    fn lookup(&mut self, text: &str) -> PageTables {
        self.cache.lookup(&ids(text), usize::MAX, &mut self.pools)
    }

    /// A sequence that has come this far.
    fn sequence(&mut self, text: &str) -> PageTables {
        let mut tables = self.lookup(text);
        let more = text.len() - tables.committed();
        assert!(tables.reserve(more, &mut self.pools, &mut Vec::new()));
        tables.commit(more);
        tables
    }

    fn insert(&mut self, text: &str, tables: &PageTables) {
        self.cache.insert(&ids(text), tables, &mut self.pools);
    }

    fn end(&mut self, mut tables: PageTables) {
        tables.truncate(0, &mut self.pools);
    }

    /// A text that was here, and is no more.
    fn past(&mut self, text: &str) {
        let tables = self.sequence(text);
        self.insert(text, &tables);
        self.end(tables);
    }

    /// How much of a text is cached.
    fn found(&mut self, text: &str) -> usize {
        let tables = self.lookup(text);
        let found = tables.committed();
        self.end(tables);
        found
    }
}

const PAGE: &str = "sixteen letters.";

#[test]
fn the_longest_beginning_is_found_within_pages_too() {
    let mut world = World::new(20);
    assert_eq!(world.found("any text"), 0);
    for end in ["", "the cat", "the cow went to the moon", "a dog"] {
        world.past(&format!("{PAGE}{end}"));
    }
    // One page for all, and one each for `the cat`, `the cow went to ` and `a dog`, and one for `the moon`.
    assert_eq!((world.cache.pages(), world.pools[0].used()), (5, 5));
    for (end, found) in [
        ("", 0),
        ("the cat sat", 7),
        ("the car", 6),
        ("the cow went to the moon and back", 24),
        ("the cow went home", 13),
        ("zoo", 0),
    ] {
        let text = format!("{PAGE}{end}");
        assert_eq!(world.found(&text), 16 + found, "{end}");
    }
    assert_eq!(world.found("sixteen men"), 8);
    assert_eq!(world.found("the cat"), 0, "elsewhere it is another text");
    let before = world.cache.figures();
    let text = ids(PAGE);
    let mut tables = world.cache.lookup(&text, 15, &mut world.pools);
    assert_eq!(tables.committed(), 15);
    tables.truncate(0, &mut world.pools);
    let figures = world.cache.figures();
    assert_eq!(figures.lookups - before.lookups, 1);
    assert_eq!(figures.tokens_asked - before.tokens_asked, 15);
    assert_eq!(figures.tokens_found - before.tokens_found, 15);
}

#[test]
fn what_is_here_stays_and_what_goes_on_replaces_it() {
    let mut world = World::new(20);
    let (first, second) = (world.sequence("abc"), world.sequence("abcdef"));
    world.insert("abc", &first);
    world.insert("abcdef", &second);
    assert_eq!(world.cache.pages(), 1, "the longer one");
    assert_eq!(world.pools[0].holders(first.tables()[0][0]), 1);
    let third = world.sequence("abcdef");
    assert_eq!(third.tables(), second.tables());
    world.insert("abc", &first);
    assert_eq!((world.cache.pages(), world.found("abcdef")), (1, 6));
    let twice = world.sequence("abcdef");
    world.end(twice);
    world.cache.clear(&mut world.pools);
    assert_eq!((world.cache.pages(), world.pools[0].used()), (0, 2));
    assert_eq!(world.found("abc"), 0);
}

#[test]
fn what_was_not_used_for_the_longest_goes_first_and_leaves_before_their_parents() {
    let mut world = World::new(4);
    world.past(&format!("{PAGE}one"));
    world.past(&format!("{PAGE}two"));
    world.past("three");
    assert_eq!(world.pools[0].free(), 0);
    world.found(&format!("{PAGE}one"));
    assert!(world.cache.evict(2, &mut world.pools));
    assert_eq!(world.found(&format!("{PAGE}two")), 16);
    assert_eq!((world.found("three"), world.cache.pages()), (0, 2));
    assert!(world.cache.evict(3, &mut world.pools));
    assert_eq!(world.found(&format!("{PAGE}one")), 16);
    assert_eq!(world.cache.figures().evicted_pages, 3);
    assert!(!world.cache.evict(5, &mut world.pools), "there are 4");
    assert_eq!(
        world.cache.pages(),
        1,
        "for what cannot be, nothing is let go of"
    );
    assert!(world.cache.evict(4, &mut world.pools));
}

#[test]
fn what_sequences_hold_is_let_go_of_only_to_free_what_is_before_it() {
    let mut world = World::new(6);
    // Both computed the first page; the cache has the first one's.
    let text = format!("{PAGE}and more");
    let (first, second) = (world.sequence(PAGE), world.sequence(&text));
    world.insert(PAGE, &first);
    world.insert(&text, &second);
    assert_eq!((world.pools[0].used(), world.cache.pages()), (3, 2));
    assert!(!world.cache.evict(4, &mut world.pools));
    assert_eq!(world.cache.pages(), 2, "all of it is in use");
    world.end(first);
    assert!(world.cache.evict(4, &mut world.pools));
    assert_eq!(world.cache.pages(), 0);
    world.end(second);
}

#[test]
fn a_sequence_that_is_alone_grows_to_the_end_of_the_pool() {
    let mut world = World::new(2);
    world.past(&format!("{PAGE}and more"));
    let text = format!("{PAGE}and");
    let mut tables = world.sequence(&text);
    // Both pages are the cache's too, and there is no third to copy the second to.
    assert_eq!((tables.committed(), world.pools[0].free()), (19, 0));
    assert!(!world.cache.evict(1, &mut world.pools));
    assert!(world.cache.make_room(&tables, 13, &mut world.pools));
    let mut copies = Vec::new();
    assert!(tables.reserve(13, &mut world.pools, &mut copies) && copies.is_empty());
    tables.commit(13);
    assert_eq!(pages_for(tables.committed()), 2);
    assert!(!world.cache.make_room(&tables, 1, &mut world.pools));
    assert_eq!(world.cache.pages(), 1, "the first page");
}
