//! The `anyaccel` command. Each subcommand is a module; [`output`] has the rules of what is printed where, and of exit
//! codes.

mod bench;
mod cts;
mod demo;
mod doctor;
mod environment;
mod info;
mod layout;
mod memory;
mod output;
mod progress;
mod random;
mod replay;
mod size;
mod snapshot_file;
mod tune;
mod view;
mod watched;

use clap::error::{ContextKind, ErrorKind};
use clap::{Parser, Subcommand};
use output::{Class, Failure, Output};
use std::ffi::OsString;
use std::process::ExitCode;

const LONG: &str = "\
One accelerator runtime for every chip. This command shows the devices that it
finds, examines why others are missing, and puts them to work.

Variables:
  ANYACCEL_BACKEND        which backend to use, by name; without it the first
                          kind that has a device. host and sim are used only
                          when named
  ANYACCEL_PLUGINS        vendors' libraries to load, absolute paths with colons
                          between them; see anyaccel doctor
  ANYACCEL_HOST_DEVICES   how many host devices there are, 0 to 64
  ANYACCEL_HOST_MEMORY    memory of each, in bytes or as 512MiB

Errors are one line on standard error. With --json they are also the one
document on standard output: {\"schema\": \"anyaccel.error.v1\", \"error\":
{\"class\": ..., \"message\": ...}}, or the last line, where there are lines
already; class is usage, environment, input, device, wrong or output.

Exit code: 0 done, 1 failed, 2 the command line makes no sense, 141 who reads
standard output has left.";

#[derive(Parser, Debug)]
#[command(name = "anyaccel", version, about = "Devices, streams and kernels on any accelerator", long_about = LONG)]
#[command(max_term_width = layout::WIDTH, disable_help_subcommand = true, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Info(info::Args),
    Doctor(doctor::Args),
    Demo(demo::Args),
    Cts(cts::Args),
    Random(random::Args),
    Replay(replay::Args),
    Tune(tune::Args),
    View(view::Args),
    Memory(memory::Args),
    Bench(bench::Args),
}

fn main() -> ExitCode {
    cts::run_script();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let command = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli.command,
        Err(error) => return not_run(&error, arguments.iter().any(|argument| argument == "--json")),
    };
    let json = match &command {
        Command::Info(args) => args.json,
        Command::Doctor(args) => args.json,
        Command::Demo(args) => args.json,
        Command::Cts(args) => args.json,
        Command::Random(args) => args.json,
        Command::Replay(args) => args.json,
        Command::Tune(args) => args.json,
        Command::View(args) => args.json,
        Command::Memory(args) => args.json,
        Command::Bench(args) => args.json,
    };
    let is_watched = match &command {
        Command::Cts(args) => args.is_watched(),
        Command::Demo(args) => args.is_watched(),
        Command::Doctor(args) => args.is_watched(),
        Command::Random(args) => args.is_watched(),
        _ => false,
    };
    let mut output = match is_watched {
        true => match Output::watched(json) {
            Ok(output) => output,
            Err(failure) => return Output::new(json).finish(Err(failure)),
        },
        false => Output::new(json),
    };
    let result = match &command {
        Command::Info(_) => info::run(&mut output),
        Command::Doctor(args) => doctor::run(args, &mut output),
        Command::Demo(args) => demo::run(args, &mut output),
        Command::Cts(args) => cts::run(args, &mut output),
        Command::Random(args) => random::run(args, &mut output),
        Command::Replay(args) => replay::run(args, &mut output),
        Command::Tune(args) => tune::run(args, &mut output),
        Command::View(args) => view::run(args, &mut output),
        Command::Memory(args) => memory::run(args, &mut output),
        Command::Bench(args) => bench::run(args, &mut output),
    };
    output.finish(result)
}

/// The arguments ask for help, or make no sense.
fn not_run(error: &clap::Error, json: bool) -> ExitCode {
    if !error.use_stderr() {
        let mut output = Output::new(false);
        let result = output.text(&error.render().to_string());
        return output.finish(result);
    }
    Output::new(json).finish(Err(Failure::new(Class::Usage, usage(error))))
}

/// The error in one line. The parser writes several: the error, maybe a tip, and the usage.
fn usage(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let names = match error.get(ContextKind::ValidSubcommand) {
            Some(names) => format!(": {names}"),
            None => String::new(),
        };
        return format!("a command is needed{names}; see anyaccel --help");
    }
    let text = error.render().to_string();
    let said: Vec<&str> = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .collect();
    // A tip is a sentence of its own.
    let said = said.join(" ").replace(" tip: ", "; ");
    format!("{}; see anyaccel --help", said.strip_prefix("error: ").unwrap_or(&said))
}
