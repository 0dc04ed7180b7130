//! A slice that the threads of one pass share.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;

/// A mutable slice lent to all threads of a parallel region, each of which takes disjoint ranges.
pub(crate) struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    _lender: PhantomData<&'a mut [T]>,
}

// SAFETY: the accessors are `unsafe` and demand that no element is written by one thread while another
// touches it; with that, sharing the slice is sharing `T` between threads.
unsafe impl<T: Send + Sync> Sync for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for Shared<'_, T> {}

impl<T> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            _lender: PhantomData,
        }
    }

    /// Reads a range.
    ///
    /// # Safety
    /// No thread may write an element of the range until a barrier later.
    #[inline(always)]
    pub(crate) unsafe fn range(&self, range: Range<usize>) -> &'a [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: in bounds by the assertion; not written meanwhile by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.add(range.start), range.end - range.start) }
    }

    /// Writes a range.
    ///
    /// # Safety
    /// No other thread may touch an element of the range until a barrier later, and this thread must not
    /// hold another reference to it.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn range_mut(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: in bounds by the assertion; exclusive by the caller's promise.
        unsafe {
            std::slice::from_raw_parts_mut(self.start.add(range.start), range.end - range.start)
        }
    }
}

/// The share of worker `index` of `count` in `items`, in runs of whole `unit`s: contiguous, covering, disjoint.
#[inline]
pub(crate) fn share(items: usize, unit: usize, index: usize, count: usize) -> Range<usize> {
    let units = items.div_ceil(unit);
    let start = units * index / count * unit;
    let end = units * (index + 1) / count * unit;
    start.min(items)..end.min(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_every_item_once() {
        for items in [0, 1, 15, 16, 17, 100, 513] {
            for unit in [1, 4, 16] {
                for count in 1..=5 {
                    let mut next = 0;
                    for index in 0..count {
                        let range = share(items, unit, index, count);
                        assert_eq!(range.start, next);
                        assert!(range.start.is_multiple_of(unit) || range.start == items);
                        next = range.end;
                    }
                    assert_eq!(next, items);
                }
            }
        }
    }
}
