//! Keys and values in pages.
//!
//! A page holds [`PAGE_POSITIONS`] positions of the layers of one [`KvGroup`] (layers with the same KV
//! shape and window). Within a page, for each layer:
//!
//! ```text
//! K of KV head 0: [head_dim][16 positions]   transposed: the scores of 16 positions sit in lanes
//! K of KV head 1: ...
//! V of KV head 0: [16 positions][head_dim]   row-major: a position's value is one run
//! V of KV head 1: ...
//! ```
//!
//! A page of bytes has their scales behind all of that: for each layer 16 for each head's keys, then 16 for each head's values.
//!
//! The scratch of a step (nodes in flight) is made of pages of the same layout; slot `s` is position
//! `s % 16` of scratch page `s / 16`.

/// Positions in a page.
pub const PAGE_POSITIONS: usize = 16;

/// A page of the KV pool of one layer group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(pub u32);

impl PageId {
    /// The page as an index into its pool.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The element type of keys and values in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KvType {
    /// IEEE half precision.
    #[default]
    F16,
    /// Signed bytes with one f32 scale for each position and head: `scale = max|x| / 127`, codes rounded to the nearest,
    /// ties to even.
    Q8,
}

impl KvType {
    /// Bytes of one element.
    pub const fn element_bytes(self) -> usize {
        match self {
            KvType::F16 => 2,
            KvType::Q8 => 1,
        }
    }

    /// Bytes of the scale of one position of one head.
    pub const fn scale_bytes(self) -> usize {
        match self {
            KvType::F16 => 0,
            KvType::Q8 => 4,
        }
    }
}

/// Layers whose keys and values have one shape, and so share pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvGroup {
    /// Layers in the group.
    pub layers: usize,
    /// Heads of key and value.
    pub kv_heads: usize,
    /// Values in a head.
    pub head_dim: usize,
    /// A row attends to this many last positions, itself included; `None` means all.
    pub window: Option<usize>,
}

impl KvGroup {
    /// Elements of the keys (or the values) of one layer in one page.
    pub fn half_layer_elements(&self) -> usize {
        self.kv_heads * self.head_dim * PAGE_POSITIONS
    }

    /// Elements of one page.
    pub fn page_elements(&self) -> usize {
        2 * self.layers * self.half_layer_elements()
    }

    /// Scales of one page, where the type has them.
    pub fn page_scales(&self) -> usize {
        2 * self.layers * self.kv_heads * PAGE_POSITIONS
    }

    /// Bytes of one page.
    pub fn page_bytes(&self, kind: KvType) -> usize {
        self.page_elements() * kind.element_bytes() + self.page_scales() * kind.scale_bytes()
    }

    /// Offset, in elements, of the keys of a head within a page: `[head_dim][16]`.
    #[inline]
    pub fn key_offset(&self, layer: usize, head: usize) -> usize {
        2 * layer * self.half_layer_elements() + head * self.head_dim * PAGE_POSITIONS
    }

    /// Offset, in elements, of the values of a head within a page: `[16][head_dim]`.
    #[inline]
    pub fn value_offset(&self, layer: usize, head: usize) -> usize {
        self.key_offset(layer, head) + self.half_layer_elements()
    }

    /// Offset, counted in scales from the start of a page of [`KvType::Q8`], of the scales of a head's keys: `[16]`.
    #[inline]
    pub fn key_scale_offset(&self, layer: usize, head: usize) -> usize {
        let codes = self.page_elements() / KvType::Q8.scale_bytes();
        codes + (2 * layer * self.kv_heads + head) * PAGE_POSITIONS
    }

    /// The same of its values.
    #[inline]
    pub fn value_scale_offset(&self, layer: usize, head: usize) -> usize {
        self.key_scale_offset(layer, head) + self.kv_heads * PAGE_POSITIONS
    }
}

/// Pages that `positions` positions need.
pub fn pages_for(positions: usize) -> usize {
    positions.div_ceil(PAGE_POSITIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_smollm2_is_360_kib() {
        let group = KvGroup {
            layers: 30,
            kv_heads: 3,
            head_dim: 64,
            window: None,
        };
        // 30 layers * 2 * 3 heads * 64 * 16 positions * 2 bytes
        assert_eq!(group.page_bytes(KvType::F16), 368_640);
        assert_eq!(group.value_offset(29, 2) + 64 * 16, group.page_elements());
        // Bytes, and 30 * 2 * 3 * 16 scales of 4: 0.53 of the halves.
        assert_eq!(group.page_bytes(KvType::Q8), 184_320 + 11_520);
        assert_eq!(
            (group.value_scale_offset(29, 2) + 16) * 4,
            group.page_bytes(KvType::Q8)
        );
    }

    #[test]
    fn offsets_of_all_heads_and_layers_tile_the_page() {
        let group = KvGroup {
            layers: 3,
            kv_heads: 2,
            head_dim: 4,
            window: None,
        };
        let mut starts: Vec<usize> = (0..3)
            .flat_map(|l| {
                (0..2).flat_map(move |h| [group.key_offset(l, h), group.value_offset(l, h)])
            })
            .collect();
        starts.sort_unstable();
        let expected: Vec<usize> = (0..12).map(|i| i * 64).collect();
        assert_eq!(starts, expected);
    }

    #[test]
    fn pages_round_up() {
        assert_eq!([0, 1, 16, 17].map(pages_for), [0, 1, 1, 2]);
    }
}
