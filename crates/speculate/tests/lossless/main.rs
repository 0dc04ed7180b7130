//! That verification changes nothing: the law of what is emitted, enumerated exactly and counted in draws, is the
//! target's own. And the proof has teeth: faults planted on purpose are found.
//!
//! | module | holds |
//! | --- | --- |
//! | `model` | pairs of a target and a drafter over a few tokens, and plans of what is drafted |
//! | `enumerate` | every outcome of a step with its probability |
//! | `exact` | the enumerated law against the target's |
//! | `decode` | generation through the real draws |
//! | `draws` | the frequencies of what is generated against the target's law |
//! | `acceptance` | how often drafts are accepted, against theory |
//! | `reference` | a second reading of the rejection rule, whole or with a fault |
//! | `faults` | each planted fault is found |

mod acceptance;
mod decode;
mod draws;
mod enumerate;
mod exact;
mod faults;
mod model;
mod reference;
