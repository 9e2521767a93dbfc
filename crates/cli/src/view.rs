//! `anyaccel view`: a memory history as one page.

use crate::layout::{bytes, counted};
use crate::output::{Class, Failure, Output, one_line};
use crate::snapshot_file;
use anyaccel_snapshot::view;
use serde::Serialize;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

const LONG: &str = "\
Writes one page that shows a memory history in a browser: memory over time
stacked by allocation, a flame graph of the stacks, the segments at any moment
with their free gaps and who pins them, and why a request failed. The page holds
everything: it needs no network and no other file.

SNAPSHOT is what torch.cuda.memory._dump_snapshot or this project's
dump_snapshot wrote, plain or gzip; - is standard input. It is read as plain
data: nothing in it can run.

Example:
  $ anyaccel view oom.pickle -o oom.html

JSON (schema anyaccel.view.v1):
  output, bytes, events

Exit code: 0, 1 if the file can't be read or the page can't be written, 2 for
bad arguments.";

/// Show a memory history as a page for the browser
#[derive(clap::Args, Debug)]
#[command(long_about = LONG)]
pub(crate) struct Args {
    /// The snapshot, - for standard input
    #[arg(value_name = "SNAPSHOT")]
    file: PathBuf,

    /// The page to write, - for standard output
    #[arg(short, long, value_name = "PAGE")]
    output: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    output: &'a str,
    bytes: u64,
    events: usize,
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let to_stdout = args.output == Path::new("-");
    if to_stdout && output.is_json() {
        return Err(Failure::new(Class::Usage, "--json and -o - both want standard output"));
    }
    let (snapshot, name) = snapshot_file::read(&args.file)?;
    let title = args.file.file_name().map_or_else(|| name.clone(), |file| file.to_string_lossy().into_owned());
    let title = if args.file == Path::new("-") { "memory history" } else { &title };
    if to_stdout {
        let mut out = BufWriter::new(io::stdout().lock());
        return match view::write(&snapshot, title, &mut out).and_then(|()| out.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(Failure::new(Class::Output, format!("can't write to standard output: {error}")))
            }
            _ => Ok(()),
        };
    }
    view::save(&snapshot, title, &args.output).map_err(|error| Failure::new(Class::Output, error.to_string()))?;
    let page = one_line(&args.output.display().to_string());
    let size = args.output.metadata().map_or(0, |file| file.len());
    if output.is_json() {
        let document = Document { schema: "anyaccel.view.v1", output: &page, bytes: size, events: snapshot.events() };
        return output.document(&document);
    }
    let events = counted(snapshot.events() as u64, "event", "events");
    output.text(&format!("{page}: {events}, {}\n", bytes(size)))
}
