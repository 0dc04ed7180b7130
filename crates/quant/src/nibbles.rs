//! Four-bit fields as the 32-element formats store them: element `i` in the low half of byte `i`,
//! element `i + 16` in its high half.

/// The 32 unsigned fields of 16 bytes.
#[inline(always)]
pub(crate) fn split(bytes: &[u8]) -> [u8; 32] {
    debug_assert_eq!(bytes.len(), 16);
    let mut fields = [0; 32];
    let (low, high) = fields.split_at_mut(16);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
        *low = byte & 0x0f;
        *high = byte >> 4;
    }
    fields
}

/// The inverse of [`split`], over the low four bits of each field.
pub(crate) fn join(fields: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|i| (fields[i] & 0x0f) | (fields[i + 16] << 4))
}

/// Adds bit `i` of `high` to field `i` as its fifth bit.
#[inline(always)]
pub(crate) fn add_fifth_bits(fields: &mut [u8; 32], high: u32) {
    for (i, field) in fields.iter_mut().enumerate() {
        *field |= (((high >> i) & 1) as u8) << 4;
    }
}

/// The fifth bits of 32 fields: field `i` in bit `i`.
pub(crate) fn fifth_bits(fields: &[u8; 32]) -> u32 {
    let bit = |(i, field): (usize, &u8)| u32::from((field >> 4) & 1) << i;
    fields.iter().enumerate().map(bit).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_halves_come_first() {
        let mut bytes = [0u8; 16];
        bytes[0] = 0xa5;
        bytes[15] = 0x3c;
        let fields = split(&bytes);
        assert_eq!(
            (fields[0], fields[16], fields[15], fields[31]),
            (0x5, 0xa, 0xc, 0x3)
        );
        assert_eq!(join(&fields), bytes);
    }

    #[test]
    fn fifth_bits_are_in_element_order() {
        let mut fields = [1u8; 32];
        add_fifth_bits(&mut fields, 0x8000_0002);
        assert_eq!((fields[0], fields[1], fields[31]), (1, 17, 17));
        assert_eq!(fifth_bits(&fields), 0x8000_0002);
    }
}
