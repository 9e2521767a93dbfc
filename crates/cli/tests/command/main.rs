//! The command as its users meet it: a process with arguments, variables, files and pipes.

mod cts;
mod demo;
mod doctor;
mod info;
mod output;
mod process;
mod random;
#[cfg(unix)]
mod terminal;
mod usage;
