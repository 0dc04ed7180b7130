//! The 12 bytes in which Q4_K and Q5_K hold eight 6-bit scales and eight 6-bit minima.
//!
//! | byte | bits 0..4 | bits 4..6 | bits 6..8 |
//! | --- | --- | --- | --- |
//! | `j` = 0..4 | scale `j`, low part | scale `j`, high part | bits 4..6 of scale `j + 4` |
//! | `4 + j` | min `j`, low part | min `j`, high part | bits 4..6 of min `j + 4` |
//! | `8 + j` | bits 0..4 of scale `j + 4` | bits 0..2 of min `j + 4` | bits 2..4 of min `j + 4` |

/// Scales and minima of the eight sub-blocks, each 0..64.
#[inline(always)]
pub(crate) fn unpack(bytes: &[u8]) -> ([u8; 8], [u8; 8]) {
    debug_assert_eq!(bytes.len(), 12);
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    for j in 0..4 {
        let (scale, min, both) = (bytes[j], bytes[4 + j], bytes[8 + j]);
        scales[j] = scale & 63;
        mins[j] = min & 63;
        scales[4 + j] = (both & 15) | ((scale >> 6) << 4);
        mins[4 + j] = (both >> 4) | ((min >> 6) << 4);
    }
    (scales, mins)
}

/// The inverse of [`unpack`].
pub(crate) fn pack(scales: &[u8; 8], mins: &[u8; 8]) -> [u8; 12] {
    let mut bytes = [0; 12];
    for j in 0..4 {
        bytes[j] = scales[j] | ((scales[4 + j] >> 4) << 6);
        bytes[4 + j] = mins[j] | ((mins[4 + j] >> 4) << 6);
        bytes[8 + j] = (scales[4 + j] & 15) | ((mins[4 + j] & 15) << 4);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_survives_alone_and_among_others() {
        for field in 0..16 {
            for value in [1u8, 15, 16, 48, 63] {
                for others in [0u8, 63] {
                    let mut fields = [others; 16];
                    fields[field] = value;
                    let (scales, mins) = fields.split_at(8);
                    let scales: [u8; 8] = scales.try_into().expect("eight");
                    let mins: [u8; 8] = mins.try_into().expect("eight");
                    assert_eq!(unpack(&pack(&scales, &mins)), (scales, mins));
                }
            }
        }
    }

    #[test]
    fn bits_are_where_the_table_says() {
        let mut bytes = [0; 12];
        bytes[1] = 0b10_110101;
        bytes[6] = 0b01_001111;
        bytes[9] = 0b0110_1001;
        bytes[10] = 0b0011_0000;
        let (scales, mins) = unpack(&bytes);
        assert_eq!(scales, [0, 0b110101, 0, 0, 0, 0b10_1001, 0, 0]);
        assert_eq!(mins, [0, 0, 0b001111, 0, 0, 0b0110, 0b01_0011, 0]);
    }
}
