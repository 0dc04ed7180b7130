//! Placeholder: see types.rs.
mod types;
pub use types::WeightType;
