//! Random operations on sequences, pools and the prefix cache, beside a naive model of all three.
//!
//! The model knows what every position of every physical page holds: a number for the whole text up to it, which is what
//! keys and values depend on. It keeps the cache as a list of texts, each with its pages, and searches it from end to end.

mod naive;

use foredraft_common::TokenId;
use foredraft_model::kv::{PAGE_POSITIONS, PageId, pages_for};
use foredraft_model::{PageCopy, PagePool, PageTables, PrefixCache};
use foredraft_testing::Random;
use naive::{Cached, TextNumber, numbers};

const OPERATIONS: usize = 100_000;
const GROUPS: usize = 2;
/// Too few for five sequences of up to 300 tokens, and in the first group too few for one.
const PAGES: [usize; GROUPS] = [18, 20];
const MOST_SEQUENCES: usize = 5;
const MOST_TOKENS: usize = 300;

fn agreement(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

struct Sequence {
    tokens: Vec<TokenId>,
    tables: PageTables,
}

/// How often what should be met was met.
#[derive(Debug, Default)]
struct Counts {
    found: usize,
    found_in_part: usize,
    lengthened: usize,
    copies: usize,
    evicted: usize,
    evictions_failed: usize,
    held_let_go: usize,
    wrote_in_place: usize,
    no_room: usize,
}

struct World {
    random: Random,
    pools: [PagePool; GROUPS],
    /// What each position of each page holds.
    content: [Vec<[TextNumber; PAGE_POSITIONS]>; GROUPS],
    sequences: Vec<Sequence>,
    cache: PrefixCache,
    cached: Vec<Cached>,
    now: usize,
    counts: Counts,
}

/// What is done.
impl World {
    fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            pools: PAGES.map(PagePool::new),
            content: PAGES.map(|pages| vec![[0; PAGE_POSITIONS]; pages]),
            sequences: Vec::new(),
            cache: PrefixCache::new(GROUPS),
            cached: Vec::new(),
            now: 0,
            counts: Counts::default(),
        }
    }

    fn operate(&mut self) {
        match self.random.below(20) {
            0..=3 => self.open(),
            4..=10 => self.grow(),
            11 => self.share(),
            12 => self.truncate(),
            13..=15 => self.insert(),
            16..=17 => self.end(),
            18 => self.evict(),
            _ if self.random.below(100) == 0 => {
                self.cache.clear(&mut self.pools);
                self.cached.clear();
            }
            _ if self.random.below(20) == 0 => {
                while self.sequences.len() > 1 {
                    self.end();
                }
            }
            _ => {}
        }
    }

    /// Mostly zeros, so that texts often agree for long, and end to agree within a page.
    fn token(&mut self) -> TokenId {
        TokenId(self.random.below(60).saturating_sub(57) as u32)
    }

    fn any_sequence(&mut self) -> Option<usize> {
        let count = self.sequences.len();
        (count > 0).then(|| self.random.below(count))
    }

    /// Looks up a text, and makes what was found a sequence.
    fn open(&mut self) {
        if self.sequences.len() == MOST_SEQUENCES {
            return;
        }
        let known = self.random.below(self.cached.len() + 1);
        let known = self.cached.get(known).map(|cached| cached.text.clone());
        let mut text = known.unwrap_or_default();
        text.truncate(self.random.below(text.len() + 1));
        for _ in 0..self.random.below(30) {
            text.push(self.token());
        }
        let most = self.random.below(text.len() + 2);
        let before = self.cache.figures();
        let tables = self.cache.lookup(&text, most, &mut self.pools);
        let after = self.cache.figures();

        let asked = &text[..most.min(text.len())];
        let agreements = self.cached.iter().map(|page| agreement(&page.text, asked));
        let longest = agreements.max().unwrap_or(0);
        assert_eq!(tables.committed(), longest);
        assert_eq!(after.lookups - before.lookups, 1);
        assert_eq!(after.tokens_asked - before.tokens_asked, asked.len() as u64);
        assert_eq!(after.tokens_found - before.tokens_found, longest as u64);
        // The pages on the path are used now; the last may be any of those that agree as far.
        self.now += 1;
        for (place, page) in tables.tables()[0].iter().enumerate() {
            let mut cached = self.cached.iter_mut();
            let cached = cached.find(|cached| cached.pages[0] == *page);
            let cached = cached.expect("a page of the cache");
            assert_eq!(pages_for(cached.text.len()), place + 1);
            cached.used = self.now;
        }
        text.truncate(longest);
        self.counts.found += usize::from(longest > 0);
        self.counts.found_in_part += usize::from(!longest.is_multiple_of(PAGE_POSITIONS));
        self.sequences.push(Sequence {
            tokens: text,
            tables,
        });
    }

    /// Commits more tokens, if there is room for them.
    fn grow(&mut self) {
        let Some(index) = self.any_sequence() else {
            return;
        };
        let committed = self.sequences[index].tokens.len();
        let more = self.random.below(40).min(MOST_TOKENS - committed);
        let has_room = self.make_room(index, more);
        self.reserve(index, more, has_room);
        if !has_room {
            self.counts.no_room += 1;
            return;
        }
        if self.random.below(8) == 0 {
            // In vain.
            let tables = &mut self.sequences[index].tables;
            tables.truncate(committed, &mut self.pools);
            return;
        }
        for _ in 0..more {
            let token = self.token();
            self.sequences[index].tokens.push(token);
        }
        let sequence = &mut self.sequences[index];
        let all = numbers(&sequence.tokens);
        for (content, table) in self.content.iter_mut().zip(sequence.tables.tables()) {
            for (position, &number) in all.iter().enumerate().skip(committed) {
                let page = table[position / PAGE_POSITIONS];
                content[page.index()][position % PAGE_POSITIONS] = number;
            }
        }
        sequence.tables.commit(more);
    }

    /// Lets the cache make room, and expects what can be counted by hand.
    fn make_room(&mut self, index: usize, more: usize) -> bool {
        let needed = self.sequences[index].tables.needs(more, &self.pools);
        self.evict_naively(needed);
        let Sequence { tokens, tables } = &self.sequences[index];
        let (table, all) = (&tables.tables()[0], pages_for(tokens.len() + more));
        let holders = |page: PageId| {
            let sequences = self.sequences.iter();
            let sequences = sequences.filter(|other| other.tables.tables()[0].contains(&page));
            let cached = self.cached.iter().filter(|cached| cached.pages[0] == page);
            (sequences.count(), cached.count())
        };
        let pages = |pages: usize| (0..pages as u32).map(PageId);
        let is_free = |&page: &PageId| holders(page) == (0, 0);
        let free = pages(PAGES[0]).filter(is_free).count();
        let last = table
            .get(tokens.len() / PAGE_POSITIONS)
            .filter(|_| more > 0);
        let has_room = match last.map(|&page| (page, holders(page))) {
            // Without room for a copy: in the page that was the cache's too, unless more of the cache is behind it.
            Some((page, (1, 1))) if free + table.len() == all && self.is_last(page) => {
                self.cached.retain(|cached| cached.pages[0] != page);
                self.counts.wrote_in_place += 1;
                true
            }
            Some((_, (sequences, cached))) => {
                let copies = usize::from(sequences + cached > 1);
                all + copies <= free + table.len()
            }
            None => all <= free + table.len(),
        };
        let made = self.cache.make_room(tables, more, &mut self.pools);
        assert_eq!(made, has_room);
        let fits = all <= PAGES[0].min(PAGES[1]);
        assert!(has_room || self.sequences.len() > 1 || !fits, "stuck");
        has_room
    }

    /// Reserves, expecting success or failure, and does the copies.
    fn reserve(&mut self, index: usize, more: usize, expected: bool) {
        let tables = &mut self.sequences[index].tables;
        let before = tables.tables().to_vec();
        let mut copies: Vec<PageCopy> = Vec::new();
        assert_eq!(tables.reserve(more, &mut self.pools, &mut copies), expected);
        if !expected {
            assert_eq!((tables.tables(), copies.len()), (&before[..], 0));
        }
        self.counts.copies += copies.len();
        for copy in copies {
            let content = &mut self.content[copy.group];
            content[copy.to.index()] = content[copy.from.index()];
        }
    }

    fn share(&mut self) {
        let Some(index) = self.any_sequence() else {
            return;
        };
        if self.sequences.len() < MOST_SEQUENCES {
            let Sequence { tokens, tables } = &self.sequences[index];
            let kept = self.random.below(tokens.len() + 1);
            let tokens = tokens[..kept].to_vec();
            let tables = tables.share(kept, &mut self.pools);
            self.sequences.push(Sequence { tokens, tables });
        }
    }

    fn truncate(&mut self) {
        if let Some(index) = self.any_sequence() {
            let sequence = &mut self.sequences[index];
            let kept = self.random.below(sequence.tokens.len() + 1);
            sequence.tokens.truncate(kept);
            sequence.tables.truncate(kept, &mut self.pools);
        }
    }

    fn insert(&mut self) {
        if let Some(index) = self.any_sequence() {
            self.insert_one(index);
        }
    }

    fn insert_one(&mut self, index: usize) {
        let Sequence { tokens, tables } = &self.sequences[index];
        let mut text = tokens.clone();
        text.extend(vec![TokenId(9); self.random.below(3)]); // not committed
        self.cache.insert(&text, tables, &mut self.pools);

        self.now += 1;
        for place in 0..pages_for(tokens.len()) {
            let text = &tokens[..tokens.len().min((place + 1) * PAGE_POSITIONS)];
            let pages = [0, 1].map(|group| tables.tables()[group][place]);
            let is_here = |cached: &Cached| pages_for(cached.text.len()) == place + 1;
            let begins = |cached: &&mut Cached| is_here(cached) && cached.text.starts_with(text);
            let longer = self.cached.iter_mut().filter(begins);
            // If several begin with the text, the first in a dictionary counts as used.
            if let Some(longer) = longer.min_by(|a, b| a.text.cmp(&b.text)) {
                longer.used = self.now;
                continue;
            }
            let count = self.cached.len();
            let stays = |cached: &Cached| !(is_here(cached) && text.starts_with(&cached.text));
            self.cached.retain(stays);
            self.counts.lengthened += count - self.cached.len();
            self.cached.push(Cached {
                text: text.to_vec(),
                pages,
                used: self.now,
            });
        }
    }

    fn end(&mut self) {
        let Some(index) = self.any_sequence() else {
            return;
        };
        if self.random.below(3) > 0 {
            self.insert_one(index);
        }
        let mut ended = self.sequences.swap_remove(index);
        ended.tables.truncate(0, &mut self.pools);
    }

    fn evict(&mut self) {
        let free = self.random.below(PAGES[0] + 4);
        let expected = self.evict_naively(free);
        let before = (self.cache.pages(), self.cache.figures().evicted_pages);
        assert_eq!(self.cache.evict(free, &mut self.pools), expected);
        let after = (self.cache.pages(), self.cache.figures().evicted_pages);
        assert_eq!((before.0 - after.0) as u64, after.1 - before.1);
        self.counts.evictions_failed += usize::from(!expected);
    }
}

#[test]
fn pages_and_prefixes_are_those_of_a_naive_model() {
    let started = std::time::Instant::now();
    let mut world = World::new(1);
    for _ in 0..OPERATIONS {
        world.operate();
        world.check();
    }
    let counts = &world.counts;
    println!(
        "{OPERATIONS} operations in {:?}: {counts:?}",
        started.elapsed()
    );
    let often = [
        counts.found,
        counts.found_in_part,
        counts.lengthened,
        counts.copies,
        counts.evicted,
        counts.evictions_failed,
        counts.held_let_go,
        counts.no_room,
    ];
    assert!(often.iter().all(|&count| count > 100) && counts.wrote_in_place > 10);

    while !world.sequences.is_empty() {
        world.end();
    }
    world.cache.clear(&mut world.pools);
    assert_eq!(world.pools.map(|pool| pool.used()), [0; GROUPS]);
    assert_eq!(world.cache.pages(), 0);
}
