//! The command as its users meet it: a process with arguments, variables, files and pipes.

mod bench;
mod cts;
mod demo;
mod doctor;
mod info;
mod output;
mod plugins;
mod process;
mod random;
mod replay;
mod snapshots;
#[cfg(unix)]
mod terminal;
mod usage;
