use proptest::prelude::*;

use super::*;

fn decoding(nodes: usize) -> Want {
    Want {
        pending: 1,
        nodes,
        whole: false,
        waited: 0,
    }
}

fn reading(pending: usize) -> Want {
    Want {
        pending,
        ..decoding(0)
    }
}

const LIMITS: PassLimits = PassLimits {
    rows: 32,
    outputs: 24,
    prompt_rows: 8,
};

fn shares(wants: &[Want], limits: PassLimits) -> Vec<(usize, usize)> {
    let mut shares = Vec::new();
    Scheduler::default().share_out(wants, limits, &mut shares);
    shares
        .iter()
        .map(|share| (share.rows, share.nodes))
        .collect()
}

#[test]
fn a_prompt_alone_gets_the_whole_pass_and_its_end_carries_a_tree() {
    assert_eq!(shares(&[reading(100)], LIMITS), [(32, 0)]);
    let end = Want {
        nodes: 8,
        ..reading(20)
    };
    assert_eq!(shares(&[end], LIMITS), [(20, 8)]);
    // 30 of 32 rows leave 2 for nodes.
    let longer = Want { pending: 30, ..end };
    assert_eq!(shares(&[longer], LIMITS), [(30, 2)]);
}

#[test]
fn roots_come_first_then_a_chunk_of_the_oldest_prompt_then_trees() {
    let wants = [reading(100), decoding(9), reading(3), decoding(9)];
    assert_eq!(shares(&wants, LIMITS), [(8, 0), (1, 9), (0, 0), (1, 9)]);
    // A short prompt leaves of its 8 rows to the next.
    let wants = [decoding(0), reading(3), reading(100)];
    assert_eq!(shares(&wants, LIMITS), [(1, 0), (3, 0), (5, 0)]);
}

#[test]
fn trees_shrink_fairly_when_rows_run_out() {
    // 24 outputs, 3 of them roots: 21 nodes for wants of 4, 20 and 20.
    let wants = [decoding(20), decoding(4), decoding(20)];
    assert_eq!(shares(&wants, LIMITS), [(1, 8), (1, 4), (1, 9)]);
}

#[test]
fn a_whole_tree_is_whole_or_waits_and_the_longest_waiting_goes_first() {
    let whole = |nodes, waited| Want {
        nodes,
        waited,
        whole: true,
        ..decoding(0)
    };
    let wants = [whole(15, 0), whole(10, 1), decoding(3)];
    assert_eq!(shares(&wants, LIMITS), [(0, 0), (1, 10), (1, 3)]);
    assert_eq!(
        shares(&[whole(15, 1), whole(10, 0), decoding(3)], LIMITS),
        [(1, 15), (0, 0), (1, 3)]
    );
    // A prompt whose last token would come without its tree leaves it for later.
    let end = Want {
        pending: 20,
        ..whole(15, 0)
    };
    assert_eq!(shares(&[end], LIMITS), [(19, 0)]);
}

/// A want of at most 12 nodes; wants of several tokens are read.
fn want() -> impl Strategy<Value = Want> {
    (1..60usize, 0..=12usize, any::<bool>(), any::<bool>()).prop_map(
        |(pending, nodes, whole, decodes)| Want {
            pending: if decodes { 1 } else { pending },
            nodes,
            whole,
            waited: 0,
        },
    )
}

/// Limits that serve 12 sequences and a tree of 12 nodes.
fn limits() -> impl Strategy<Value = PassLimits> {
    (24..80usize, 24..80usize, 1..20usize).prop_map(|(rows, outputs, prompt_rows)| PassLimits {
        rows,
        outputs,
        prompt_rows,
    })
}

/// What must hold of any pass.
fn check(wants: &[Want], limits: PassLimits, shares: &[Share]) -> Result<(), TestCaseError> {
    let has_root = |(want, share): &(&Want, &Share)| share.rows == want.pending;
    let both = || wants.iter().zip(shares);
    let rows: usize = shares.iter().map(|share| share.rows + share.nodes).sum();
    let outputs: usize = both().filter(has_root).map(|(_, s)| 1 + s.nodes).sum();
    prop_assert!(rows <= limits.rows && outputs <= limits.outputs);
    for (want, share) in both() {
        prop_assert!(share.rows <= want.pending && share.nodes <= want.nodes);
        let root = has_root(&(want, share));
        prop_assert!(root || share.nodes == 0, "nodes without their root");
        if want.whole && root {
            prop_assert_eq!(share.nodes, want.nodes);
        }
        if want.pending == 1 && !want.whole {
            prop_assert_eq!(share.rows, 1, "a plain root is never kept waiting");
        }
    }
    // Reading: bounded while others decode, and the oldest first.
    let readers = || both().filter(|(want, _)| want.pending > 1);
    let decodes = both().any(|(want, share)| want.pending == 1 && share.rows > 0);
    let read: usize = readers().map(|(_, share)| share.rows).sum();
    prop_assert!(!decodes || read <= limits.prompt_rows);
    let unfinished = readers().position(|(want, share)| share.rows + 1 < want.pending);
    if let Some(first) = unfinished {
        let mut later = readers().skip(first + 1);
        prop_assert!(later.all(|(_, share)| share.rows == 0), "first come");
    }
    if let Some((_, share)) = readers().next() {
        prop_assert!(share.rows > 0, "a text is read in every step");
    }
    // Fair: nobody who got less than it wanted has two fewer than another.
    let nodes = || both().filter(|b| has_root(b) && !b.0.whole);
    let most = nodes().map(|(_, share)| share.nodes).max().unwrap_or(0);
    for (want, share) in nodes() {
        prop_assert!(share.nodes == want.nodes || share.nodes + 1 >= most);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_pass_keeps_the_rules(wants in prop::collection::vec(want(), 1..=12), limits in limits()) {
        prop_assert!(limits.serves(12, 12));
        let mut shares = Vec::new();
        Scheduler::default().share_out(&wants, limits, &mut shares);
        check(&wants, limits, &shares)?;
    }

    /// Sequences that come, read, decode and go, for 50 steps each: 100,000 passes.
    #[test]
    fn nobody_waits_for_ever(
        start in prop::collection::vec(want(), 1..=12),
        later in prop::collection::vec(want(), 50),
        limits in limits(),
    ) {
        let mut wants = start;
        let (mut scheduler, mut shares) = (Scheduler::default(), Vec::new());
        for new in later {
            scheduler.share_out(&wants, limits, &mut shares);
            check(&wants, limits, &shares)?;
            for (want, share) in wants.iter_mut().zip(&shares) {
                match share.rows {
                    0 => want.waited += 1,
                    rows => (want.pending, want.waited) = ((want.pending - rows).max(1), 0),
                }
                // Each step serves one of the 11 others at least, and each of those goes behind this one.
                prop_assert!(want.pending > 1 || want.waited < 12, "{:?}", want);
            }
            if wants.len() == 12 {
                wants.remove(new.pending % 12);
            }
            wants.push(new);
        }
    }
}
