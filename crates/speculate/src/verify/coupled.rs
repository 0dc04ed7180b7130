//! Coupled verification: the target draws its own token with the noise of the seed, and the tree is only asked
//! whether it guessed it (Daliri et al. 2408.07978; with a drafter that draws with the same noise it often has).

use super::{Chance, Draw, Target, Verifier, VerifyError, target_at};
use crate::{NodeIndex, Origin, TokenTree, Verdict};

/// Accepts a child iff it is argmax(ln p + g), the token that plain decoding with this seed emits.
///
/// Exact for any tree, pruned in any way, because what is emitted never depends on the tree.
#[derive(Debug, Clone, Copy, Default)]
pub struct Coupled;

impl Verifier for Coupled {
    fn name(&self) -> &'static str {
        "coupled"
    }

    fn verify(
        &mut self,
        tree: &TokenTree,
        target: &mut dyn Target,
        chance: &mut dyn Chance,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError> {
        verdict.accepted.clear();
        let mut node = NodeIndex::ROOT;
        loop {
            let p = target_at(target, tree, node)?;
            let token = chance.draw(tree.depth(node), Draw::Token, p);
            let Some(child) = tree.child_of(node, token) else {
                verdict.next = token;
                verdict.origin = match tree.child_count(node) {
                    0 => Origin::Bonus,
                    _ => Origin::Corrected,
                };
                return Ok(());
            };
            verdict.accepted.push(child);
            node = child;
        }
    }
}
