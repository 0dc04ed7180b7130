//! The shape of a tensor: one to four dimensions, outermost first.

use crate::limits;

/// A checked shape: one to four dimensions, none of them zero, with a product that fits `usize`.
///
/// Dimensions are kept outermost first, as safetensors writes them (GGUF writes them innermost
/// first). A matrix of a linear layer is `[rows = outputs, width = inputs]`, row-major.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The dimensions, outermost first; entries from `rank` on are 1.
    dims: [usize; limits::DIMENSIONS],
    /// How many of them are meant.
    rank: u8,
}

/// What is wrong with a list of dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum ShapeError {
    #[error("it has {0} dimensions, between 1 and 4 are possible")]
    Rank(u64),
    #[error("dimension {0} is zero")]
    Zero(usize),
    #[error("the product of its dimensions does not fit this machine's addresses")]
    Overflow,
}

impl Shape {
    /// The shape with these dimensions, outermost first.
    ///
    /// # Errors
    /// When there are none or more than four, one is zero, or their product overflows.
    pub fn new(outermost_first: &[u64]) -> Result<Self, ShapeError> {
        let rank = outermost_first.len();
        if !(1..=limits::DIMENSIONS).contains(&rank) {
            return Err(ShapeError::Rank(rank as u64));
        }
        let mut dims = [1; limits::DIMENSIONS];
        let mut product = 1usize;
        for (index, (slot, &value)) in dims.iter_mut().zip(outermost_first).enumerate() {
            if value == 0 {
                return Err(ShapeError::Zero(index));
            }
            *slot = usize::try_from(value).map_err(|_| ShapeError::Overflow)?;
            product = product.checked_mul(*slot).ok_or(ShapeError::Overflow)?;
        }
        Ok(Self {
            dims,
            rank: rank as u8,
        })
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank()]
    }

    /// The number of dimensions, 1 to 4.
    pub fn rank(&self) -> usize {
        usize::from(self.rank)
    }

    /// The innermost, contiguous dimension: the inputs of a linear layer.
    pub fn width(&self) -> usize {
        self.dims[self.rank() - 1] // rank is at least 1
    }

    /// The product of all dimensions but the innermost: the outputs of a linear layer; 1 for a vector.
    pub fn rows(&self) -> usize {
        self.dims[..self.rank() - 1].iter().product() // checked when made
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.dims().iter().product() // checked when made
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.dims()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_has_rows_and_a_width() {
        let shape = Shape::new(&[32, 64]).unwrap();
        assert_eq!(
            (shape.rows(), shape.width(), shape.elements()),
            (32, 64, 2048)
        );
        assert_eq!(shape.to_string(), "[32, 64]");
        let vector = Shape::new(&[64]).unwrap();
        assert_eq!((vector.rows(), vector.width()), (1, 64));
        let experts = Shape::new(&[8, 32, 64]).unwrap();
        assert_eq!((experts.rows(), experts.width()), (256, 64));
    }

    #[test]
    fn impossible_shapes_are_refused() {
        assert_eq!(Shape::new(&[]), Err(ShapeError::Rank(0)));
        assert_eq!(Shape::new(&[1, 1, 1, 1, 1]), Err(ShapeError::Rank(5)));
        assert_eq!(Shape::new(&[4, 0]), Err(ShapeError::Zero(1)));
        // 2^33 * 2^33 = 2^66 wraps to 4 in 64 bits.
        assert_eq!(Shape::new(&[1 << 33, 1 << 33]), Err(ShapeError::Overflow));
        assert_eq!(
            Shape::new(&[u64::MAX, u64::MAX, 1, 1]),
            Err(ShapeError::Overflow)
        );
    }
}
