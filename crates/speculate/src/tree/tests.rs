use super::*;

const ROOT: NodeIndex = NodeIndex::ROOT;

fn quarters() -> Distribution {
    Distribution::from_dense(&[0.25, 0.25, 0.25, 0.25]).expect("valid")
}

fn tokens(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().map(|&id| TokenId(id)).collect()
}

#[test]
fn relations_of_a_tree_drawn_by_hand() {
    //        9
    //      /   \
    //     1     2
    //    / \     \
    //   3   4     5
    let mut tree = TokenTree::new(TokenId(9));
    let one = tree.push(ROOT, TokenId(1), 0, 0.5);
    let two = tree.push(ROOT, TokenId(2), 1, 0.25);
    let three = tree.push(one, TokenId(3), 0, 1.0);
    let five = tree.push(two, TokenId(5), 0, 1.0);
    // Added after its cousin, and still in its place among its siblings.
    let four = tree.push(one, TokenId(4), 0, 1.0);
    let children = |node| tree.children(node).collect::<Vec<_>>();
    assert_eq!(children(ROOT), [one, two]);
    assert_eq!(children(one), [three, four]);
    assert_eq!(children(two), [five]);
    assert!(children(four).is_empty());
    assert_eq!(
        tree.nodes()
            .map(|n| tree.child_count(n))
            .collect::<Vec<_>>(),
        [2, 2, 1, 0, 0, 0]
    );
    assert_eq!(tree.at_depth(2).collect::<Vec<_>>(), [three, five, four]);
    assert_eq!(tree.leaves().collect::<Vec<_>>(), [three, five, four]);
    assert_eq!((tree.parent(four), tree.parent(ROOT)), (Some(one), None));
    assert_eq!((tree.len(), tree.depth(ROOT), tree.depth(five)), (6, 0, 2));
    assert_eq!(
        (tree.node(two).source, tree.node(two).confidence),
        (1, 0.25)
    );
    assert!(!tree.is_chain());
    let mut path = tokens(&[7, 7, 7]);
    tree.path(four, &mut path);
    assert_eq!(path, tokens(&[1, 4]));
    tree.path(ROOT, &mut path);
    assert!(path.is_empty());
}

#[test]
fn a_deterministic_token_named_twice_is_one_node() {
    let mut tree = TokenTree::new(TokenId(0));
    let first = tree.push(ROOT, TokenId(1), 0, 0.5);
    assert_eq!(tree.push(ROOT, TokenId(1), 1, 0.75), first);
    let below = tree.push(first, TokenId(1), 0, 0.5);
    assert_ne!(below, first, "another parent, another node");
    assert_eq!(tree.len(), 3);
    assert_eq!(tree.node(first).source, 0);
}

#[test]
fn a_token_sampled_twice_is_two_nodes() {
    let mut tree = TokenTree::new(TokenId(0));
    assert!(tree.record(ROOT, &quarters(), Replacement::With).is_some());
    let first = tree.push_sampled(ROOT, TokenId(3), 2);
    let second = tree.push_sampled(ROOT, TokenId(3), 2);
    assert_eq!(tree.children(ROOT).collect::<Vec<_>>(), [first, second]);
    assert!(tree.node(first).is_sampled && tree.node(second).confidence == 0.25);
}

#[test]
fn deterministic_tokens_are_taken_out_of_q_before_it_is_drawn_from() {
    let mut tree = TokenTree::new(TokenId(0));
    let child = tree.push(ROOT, TokenId(1), 0, 0.5);
    let thirds = vec![
        (TokenId(0), 1.0 / 3.0),
        (TokenId(2), 1.0 / 3.0),
        (TokenId(3), 1.0 / 3.0),
    ];
    let masked = tree
        .record(ROOT, &quarters(), Replacement::Without)
        .expect("tokens are left");
    assert_eq!(masked.iter().collect::<Vec<_>>(), thirds);
    let (q, replacement) = tree.sampled(ROOT).expect("recorded");
    assert_eq!(
        (q.iter().collect(), replacement),
        (thirds, Replacement::Without)
    );
    // All of q is there already: nothing to draw, and nothing recorded.
    tree.push(child, TokenId(2), 0, 0.5);
    let all = Distribution::one_hot(TokenId(2));
    assert_eq!(tree.record(child, &all, Replacement::With), None);
    assert_eq!(tree.sampled(child), None);
    // So the next to record finds the buffer free.
    let below = tree.push(child, TokenId(3), 0, 0.5);
    assert!(tree.record(below, &all, Replacement::With).is_some());
    assert_eq!(tree.sampled(below), Some((&all, Replacement::With)));
    assert_eq!(tree.sampled(ROOT).map(|(q, _)| q.support().len()), Some(3));
}

#[test]
fn a_reset_tree_has_no_trace_of_the_old_one() {
    let mut tree = TokenTree::new(TokenId(0));
    tree.push(ROOT, TokenId(1), 0, 0.5);
    tree.record(ROOT, &quarters(), Replacement::With);
    tree.push_sampled(ROOT, TokenId(0), 0);
    tree.reset(TokenId(8));
    assert_eq!(
        (tree.len(), tree.token(ROOT), tree.child_count(ROOT)),
        (1, TokenId(8), 0)
    );
    assert_eq!((tree.children(ROOT).count(), tree.sampled(ROOT)), (0, None));
    assert!(tree.is_chain());
    let other = Distribution::one_hot(TokenId(5));
    tree.record(ROOT, &other, Replacement::Without);
    assert_eq!(tree.sampled(ROOT), Some((&other, Replacement::Without)));
}

#[test]
#[should_panic(expected = "node 4 is not of this tree of 1 nodes")]
fn a_parent_of_another_tree_is_a_fault_of_the_caller() {
    TokenTree::new(TokenId(0)).push(NodeIndex(4), TokenId(1), 0, 0.5);
}

#[test]
#[should_panic(expected = "node 0 already has sampled children; deterministic ones come before")]
fn deterministic_children_come_first() {
    let mut tree = TokenTree::new(TokenId(0));
    tree.record(ROOT, &quarters(), Replacement::With);
    tree.push(ROOT, TokenId(1), 0, 0.5);
}

#[test]
#[should_panic(expected = "token 2 cannot have been drawn as a child of node 0")]
fn without_replacement_no_token_comes_twice() {
    let mut tree = TokenTree::new(TokenId(0));
    tree.record(ROOT, &quarters(), Replacement::Without);
    tree.push_sampled(ROOT, TokenId(2), 0);
    tree.push_sampled(ROOT, TokenId(2), 0);
}

#[test]
#[should_panic(expected = "node 0 has no recorded distribution")]
fn sampled_children_need_their_q() {
    TokenTree::new(TokenId(0)).push_sampled(ROOT, TokenId(2), 0);
}
