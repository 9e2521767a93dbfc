//! `anyaccel replay`: a recorded history through the production allocator, on devices that are only numbers.

mod snapshot;
mod trace;

use crate::layout::bytes;
use crate::output::{Class, Failure, Output, one_line};
use crate::snapshot_file::wrong_settings;
use crate::{size, snapshot_file};
use anyaccel_engine::alloc::replay::Conf;
use anyaccel_engine::alloc::{Settings, VARIABLES};
use std::io::{self, Read};
use std::path::PathBuf;

/// Bytes of a configuration at most.
const LONGEST_CONF: u64 = 64 << 10;

const LONG: &str = "\
Replays a recorded history of an allocator through this project's caching
allocator, on devices that are only numbers: nothing is started, no memory is
taken. What FILE holds is told by its content; - is standard input.

A snapshot, as torch.cuda.memory._dump_snapshot or dump_snapshot writes it, a
pickle, plain or gzip: each --conf is a row of a table, of what the program
would have needed under that setting. Without one it is the setting of the
recording. A setting is a string for PYTORCH_ALLOC_CONF, as
expandable_segments:True. --conf-file has one a line.

The trace of an allocator: 'stats_every N', then one operation a line:

  alloc ID SIZE STREAM    free ID             record ID STREAM
  empty_cache             stats               snapshot
  reset_peak              reset_accumulated   fraction F
  device N                current STREAM      hold 0|1
  pool_begin A B STREAM|* pool_end A B        pool_release A B
  capture STREAM 0|1

Here --conf-file has KEY=VALUE lines: FAKE_CUDA_TOTAL_MB (memory of a device),
FAKE_CUDA_DEVICES, PYTORCH_ALLOC_CONF (settings); --conf replaces the settings.

Without --memory the devices have what the file says, or 80 GiB.

Example:
  $ anyaccel replay oom.pickle --memory 24GiB \\
      --conf '' --conf expandable_segments:True --conf max_split_size_mb:128
  $ anyaccel replay run.trace --conf expandable_segments:True
  $ anyaccel replay --json oom.trace --conf-file oom.conf > oom.jsonl

JSON of a snapshot (lines, one a setting), sizes in bytes:
  config, total_mb           the setting, memory of the device
  peak_allocated, peak_reserved, peak_requested, peak_active
  num_alloc_retries, num_ooms, num_device_alloc, num_device_free
  oom_event                  index of the event whose request failed, or null
  devices[]                  the same for each device, where several have events

JSON of a trace (lines, as recorded from PyTorch 2.14; one an operation):
  i, op         its number from 0, and its text
  r             ok, null (no bytes), oom, skip (of one that ran out), err (msg)
  seg, off      of alloc: the segment's number, the place in it
  dev[]         calls to devices, D.S being device.segment: M taken, X refused,
                F given back; R V address space reserved, released; m u mapped,
                unmapped; C a mapping refused
  stats         each as all, small and large pool: current, peak, allocated,
                freed; every N operations, when memory runs out, on request
  segments[]    of snapshot: blocks are size, requested, allocated, active, 0

Exit code: 0, also if the history ran out of memory; 1 if it can't be replayed;
2 for bad arguments.";

/// Replay a recorded history of allocator calls
#[derive(clap::Args, Debug)]
#[command(long_about = LONG)]
pub(crate) struct Args {
    /// The history, - for standard input
    file: PathBuf,

    /// Settings, as max_split_size_mb:128; again for more
    #[arg(long, value_name = "SETTINGS")]
    conf: Vec<String>,

    /// A file of settings, or the circumstances of a trace
    #[arg(long, value_name = "FILE")]
    conf_file: Option<PathBuf>,

    /// Memory of a device, as 24GiB
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = size::memory)]
    memory: Option<u64>,

    /// Print a line of JSON for each setting, or operation
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is to be replayed.
struct Input {
    reader: Box<dyn Read>,
    name: String,
}

/// What a file that is no text begins with: a pickle of protocols 2 and above, of 0 and 1, gzip, zip.
fn is_packed(head: &[u8]) -> bool {
    matches!(
        head,
        [0x80, ..]
            | [0x1f, 0x8b, ..]
            | [b'P', b'K', 3, ..]
            | [b'}' | b']', b'q' | b'(' | b'.' | 0x94, ..]
            | [b'(', b'd' | b'l', ..]
    )
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let conf = args.given()?;
    let (mut reader, name) = snapshot_file::open(&args.file)?;
    let mut head = Vec::new();
    reader.by_ref().take(3).read_to_end(&mut head).map_err(|error| snapshot_file::unread(&name, &error))?;
    let packed = is_packed(&head);
    let input = Input { reader: Box::new(io::Cursor::new(head).chain(reader)), name };
    if packed {
        return snapshot::run(args, &conf, input, output);
    }
    if args.conf.len() > 1 {
        return Err(Failure::new(Class::Usage, format!("several --conf are for snapshots; {} is a trace", input.name)));
    }
    trace::run(input, &args.circumstances(conf)?, output)
}

/// What `--conf` and `--conf-file` say.
struct Given {
    settings: Vec<Settings>,
    /// The text of `--conf-file`, and its name.
    file: Option<(String, String)>,
}

/// What the circumstances of a trace may name.
const CIRCUMSTANCES: [&str; 2] = ["FAKE_CUDA_TOTAL_MB", "FAKE_CUDA_DEVICES"];

/// Parses the circumstances of a trace. In a file that a user names nothing is passed over.
fn circumstances(text: &str, name: &str) -> Result<Conf, Failure> {
    let known: Vec<&str> = CIRCUMSTANCES.into_iter().chain(VARIABLES).collect();
    let content = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let keys = text.lines().map(str::trim).enumerate().filter(|(_, line)| content(line));
    for (at, line) in keys {
        if let Some((key, _)) = line.split_once('=')
            && !known.contains(&key)
        {
            let known = known.join(", ");
            let message = format!("{name}, line {}: '{}' is not one of {known}", at + 1, one_line(key));
            return Err(Failure::new(Class::Input, message));
        }
    }
    Conf::parse(text).map_err(|error| Failure::new(Class::Input, format!("{name}, {error}")))
}

impl Args {
    fn given(&self) -> Result<Given, Failure> {
        let parsed =
            self.conf.iter().map(|text| Settings::parse(text).map_err(|error| wrong_settings("--conf", &error)));
        let settings = parsed.collect::<Result<_, _>>()?;
        let file = match &self.conf_file {
            None => None,
            Some(path) => {
                let (file, name) = snapshot_file::open(path)?;
                let mut text = Vec::new();
                file.take(LONGEST_CONF + 1)
                    .read_to_end(&mut text)
                    .map_err(|error| snapshot_file::unread(&name, &error))?;
                if text.len() as u64 > LONGEST_CONF {
                    let message = format!("{name} is longer than {}; is it a configuration?", bytes(LONGEST_CONF));
                    return Err(Failure::new(Class::Input, message));
                }
                let text = String::from_utf8(text)
                    .map_err(|_| Failure::new(Class::Input, format!("{name} is no text in UTF-8")))?;
                Some((text, name))
            }
        };
        Ok(Given { settings, file })
    }

    /// The circumstances of a trace.
    fn circumstances(&self, given: Given) -> Result<Conf, Failure> {
        let mut conf = match given.file {
            None => Conf::default(),
            Some((text, name)) => circumstances(&text, &name)?,
        };
        if let Some(settings) = given.settings.into_iter().next() {
            conf.settings = settings;
        }
        if let Some(memory) = self.memory {
            conf.total = memory;
        }
        Ok(conf)
    }
}

#[cfg(test)]
mod tests {
    use super::is_packed;

    #[test]
    fn pickles_are_told_from_texts() {
        for head in [&b"\x80\x04\x95"[..], b"\x1f\x8b\x08", b"PK\x03", b"}q\x00", b"(dp", b"(lp"] {
            assert!(is_packed(head), "{head:?}");
        }
        for head in [&b"sta"[..], b"", b"\n", b"{\"s", b"hel", b"\0\0\0", b"all"] {
            assert!(!is_packed(head), "{head:?}");
        }
    }
}
