//! Loops over a row, compiled for the widest registers that the processor has.
//!
//! Rust compiles for the oldest processor of its target: 4 lanes of f32 on x86-64. A row has as many elements as the
//! vocabulary, and with 8 or 16 lanes the same loop takes a half or a quarter of the time. The results have the same bits: the compiler neither
//! reorders float operations nor fuses a multiplication with an addition.

/// Defines a function that is compiled once for each instruction set, and runs as the best one that is here.
///
/// What its body calls has to be `#[inline(always)]`, and closures small, or they are compiled as everything else is.
macro_rules! widest {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident<$life:lifetime>(
        $($argument:ident: $kind:ty),* $(,)?
    ) $(-> $output:ty)? $body:block) => {
        $(#[$attribute])*
        $visibility fn $name<$life>($($argument: $kind),*) $(-> $output)? {
            struct Work<$life> {
                $($argument: $kind),*
            }
            impl<$life> pulp::NullaryFnOnce for Work<$life> {
                type Output = widest!(@output $($output)?);
                #[inline(always)]
                fn call(self) -> Self::Output {
                    let Self { $($argument),* } = self;
                    $body
                }
            }
            pulp::Arch::new().dispatch(Work { $($argument),* })
        }
    };
    (@output) => { () };
    (@output $output:ty) => { $output };
}

pub(crate) use widest;
