//! The suite is itself tested: a good backend with one defect must fail the cases that are about it.

mod devices;
mod frame;
mod functions;
mod graphs;
mod marks;
mod memory;
mod waits;
mod work;

/// One test a mutant: `name: Defect on good => cases`.
macro_rules! mutants {
    ($($name:ident: $defect:ident on $good:ident => $($case:literal),+;)+) => {
        $(
            #[test]
            fn $name() {
                crate::frame::must_fail::<$defect>(crate::frame::$good(), &[$($case),+]);
            }
        )+

        /// The wrapping itself breaks nothing.
        #[test]
        fn the_same_cases_pass_without_a_defect() {
            $(crate::frame::must_pass(crate::frame::$good(), &[$($case),+]);)+
        }
    };
}
pub(crate) use mutants;
