//! The table of cases, a file for each subject.

mod builtins;
mod capabilities;
mod copy;
mod discovery;
mod face;
mod failure;
mod graph;
mod host_fn;
mod kernels;
mod life;
mod marks;
mod memory;
mod order;
mod programs;
mod progress;
mod random;
mod threads;
mod time;
mod wait_host;

pub(crate) use face::{Bent, READS, SETTERS, asked};

use crate::case::Case;

const TABLE: &[&[Case]] = &[
    discovery::CASES,
    memory::CASES,
    copy::CASES,
    order::CASES,
    marks::CASES,
    wait_host::CASES,
    host_fn::CASES,
    progress::CASES,
    programs::CASES,
    kernels::CASES,
    builtins::CASES,
    random::CASES,
    time::CASES,
    threads::CASES,
    capabilities::CASES,
    graph::CASES,
    failure::CASES,
    life::CASES,
];

/// Every case, in the order in which they are run.
pub fn all() -> impl Iterator<Item = &'static Case> {
    TABLE.iter().chain(face::TABLE).flat_map(|cases| cases.iter())
}
