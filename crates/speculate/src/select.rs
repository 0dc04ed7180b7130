//! The largest few of many, without sorting the many.

use foredraft_common::TokenId;

use crate::row;

/// A key whose order is "larger value first, lower id among equals": the better token has the larger key,
/// and no two tokens have the same. The value must not be NaN.
#[inline(always)]
pub(crate) fn rank(value: f32, token: TokenId) -> u64 {
    // + 0.0 turns -0 into +0: equal values must have equal bits.
    let bits = (value + 0.0).to_bits();
    // IEEE order as integer order: flip the sign bit of a positive value, all bits of a negative one.
    let ordered = bits ^ if bits >> 31 == 1 { u32::MAX } else { 1 << 31 };
    u64::from(ordered) << 32 | u64::from(!token.0)
}

/// The token of a key.
#[inline(always)]
pub(crate) fn ranked_token(key: u64) -> TokenId {
    TokenId(!(key as u32))
}

/// The value of a key.
#[inline(always)]
pub(crate) fn ranked_value(key: u64) -> f32 {
    let ordered = (key >> 32) as u32;
    f32::from_bits(
        ordered
            ^ if ordered >> 31 == 1 {
                1 << 31
            } else {
                u32::MAX
            },
    )
}

/// Leaves in `buffer` the keys of the `count` largest of `values` (of all when there are fewer), in no order;
/// values of -infinity are never among them. `token(i)` is the token of value i.
///
/// The buffer takes keys above the floor; at twice the count it is cut to the count by partial selection, which
/// raises the floor. Linear in the number of values: a cut costs O(count) and is paid by `count` new keys. Once the
/// floor is high, most chunks of values end at one comparison with their maximum.
pub(crate) fn keep_largest(
    values: &[f32],
    token: impl Fn(usize) -> TokenId,
    count: usize,
    buffer: &mut Vec<u64>,
) {
    const CHUNK: usize = 64;
    let room = count.saturating_mul(2).max(CHUNK);
    let (mut floor, mut floor_value) = (0, f32::NEG_INFINITY);
    buffer.clear();
    for (chunk, start) in values.chunks(CHUNK).zip((0..).step_by(CHUNK)) {
        let max = row::max(chunk);
        if max < floor_value || max == f32::NEG_INFINITY {
            continue;
        }
        for (&value, i) in chunk.iter().zip(start..) {
            let key = rank(value, token(i));
            if key < floor || value == f32::NEG_INFINITY {
                continue;
            }
            buffer.push(key);
            if buffer.len() == room
                && let Some(smallest) = cut(buffer, count)
            {
                (floor, floor_value) = (smallest, ranked_value(smallest));
            }
        }
    }
    cut(buffer, count);
}

/// Cuts the buffer to its `count` largest keys and returns the smallest of them.
fn cut(buffer: &mut Vec<u64>, count: usize) -> Option<u64> {
    if buffer.len() <= count {
        return None;
    }
    let Some(last) = count.checked_sub(1) else {
        buffer.clear();
        return None;
    };
    let (_, smallest, _) = buffer.select_nth_unstable_by(last, |a, b| b.cmp(a));
    let smallest = *smallest;
    buffer.truncate(count);
    Some(smallest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rank_orders_by_value_then_lowest_id_and_can_be_read_back() {
        let values = [f32::NEG_INFINITY, -3.0, -1e-40, 0.0, 1e-40, 2.5, f32::MAX];
        for pair in values.windows(2) {
            assert!(rank(pair[0], TokenId(0)) < rank(pair[1], TokenId(u32::MAX)));
        }
        assert!(rank(1.0, TokenId(4)) > rank(1.0, TokenId(5)));
        assert!(rank(-0.0, TokenId(4)) > rank(0.0, TokenId(5)));
        for value in values {
            let key = rank(value, TokenId(77));
            assert_eq!((ranked_value(key), ranked_token(key)), (value, TokenId(77)));
        }
    }

    proptest! {
        #[test]
        fn the_largest_are_those_that_sorting_finds(
            values in prop::collection::vec(-4i8..4, 0..400),
            count in 0usize..500,
        ) {
            let value = |&v: &i8| if v == -4 { f32::NEG_INFINITY } else { f32::from(v) };
            let values: Vec<f32> = values.iter().map(value).collect();
            let token = |i: usize| TokenId(3 * i as u32);
            let mut buffer = Vec::new();
            keep_largest(&values, token, count, &mut buffer);
            buffer.sort_unstable_by(|a, b| b.cmp(a));
            let possible = values.iter().enumerate().filter(|(_, v)| v.is_finite());
            let mut expected: Vec<u64> = possible.map(|(i, &v)| rank(v, token(i))).collect();
            expected.sort_unstable_by(|a, b| b.cmp(a));
            expected.truncate(count);
            prop_assert_eq!(buffer, expected);
        }
    }
}
