//! `anyaccel demo`: the main job. A file's bytes are counted on a device, overlapped and checked.

mod captured;
mod check;
mod input;
mod memory;
mod pipeline;
mod report;

use crate::environment::{BACKEND, PLUGINS, refusals, why_none, why_unavailable};
use crate::output::{Class, Failure, Output, note};
use crate::progress::Progress;
use crate::size::whole;
use crate::watched::{Reads, begins, work};
use anyaccel::{Error, Kind, LoadError, Runtime, backends, selection};
use check::{Counts, single_thread};
use input::Input;
use memory::MemoryDocument;
use pipeline::{Pipeline, Plan};
use report::{Check, DeviceDocument, Told, opening};
use std::path::{Path, PathBuf};

/// Streams beyond the pool of a device would share its queues.
const MOST_STREAMS: u64 = 32;

/// The largest chunk.
const MOST_CHUNK: usize = 1 << 30;

const LONG: &str = "\
Streams a file in chunks through pinned host memory to a device, on several
streams; counts there how often each byte occurs; and brings the counts back,
copies and kernels overlapping. Then counts the file again on one thread, to
check the result and to compare the speed. Prints the entropy in bits per byte,
the throughput, and from events the time that each stream spent copying (with
the wait for a copy engine, or for a core), counting, and without work.

Without --backend it uses the accelerator that anyaccel info shows as chosen;
if there is none, the built-in host device, and says so.

With --graph each stream's work on a chunk, cut into halves so that one is
copied while the other is counted, is captured once and replayed for every
whole chunk.

By default there are 4 streams; on the host device one more than cores, up to
4.

FILE is read up to the length that it had at the start. A pipe, a FIFO or
another input that can be read only once is counted on one thread along the
way; - is standard input. The first pass over a file may read it from the disk
and the second from memory: repeat the command to compare speeds.

Where ANYACCEL_PLUGINS names libraries the work is done in a process of its own:
one that takes it down is told by its name.

Example:
  $ anyaccel demo
  $ anyaccel demo --backend host --streams 8 --chunk 256KiB /boot/vmlinuz
  $ anyaccel demo --graph --dot graph.dot && dot -Tsvg -O graph.dot
  $ tar c . | anyaccel demo --json - | jq .entropy_bits_per_byte

JSON (schema anyaccel.demo.v1):
  input         name, bytes, chunk_bytes, chunks
  device        name, model, fallback (why the host device was used although
                nobody named it, or null)
  entropy_bits_per_byte
  top[]         byte, count
  pass          seconds, bytes_per_second, reading_seconds and waiting_seconds
                (of the host), device_ms (first copy to last kernel), pinned
  check         ok, how (second_pass or alongside), seconds, bytes_per_second,
                speedup (null if alongside)
  graph         captures, nodes, replays (with --graph, else null)
  streams[]     stream, chunks, bytes, copy_ms (with the wait for a copy engine
                or a core), kernel_ms, idle_ms
  memory        device and pinned: requested_bytes_peak, allocated_bytes_peak
                (rounded), reserved_bytes_peak (held), requests, segments (held
                in the end), driver_calls

Exit code: 0; 1 if the check or anything else failed; 2 for bad arguments.";

/// Count the bytes of a file on a device, overlapped and checked
#[derive(clap::Args, Debug)]
#[command(long_about = LONG)]
pub(crate) struct Args {
    /// The file, - for standard input [default: this program itself]
    pub(crate) file: Option<PathBuf>,

    /// The backend, by name
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,

    /// How many streams, 1 to 32 [default: 2 to 4]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = whole::<u64>(1..=MOST_STREAMS))]
    streams: Option<u64>,

    /// Bytes of a chunk, at most 1GiB
    #[arg(long, value_name = "SIZE", default_value = "256KiB", allow_hyphen_values = true, value_parser = chunk_size)]
    chunk: usize,

    /// Capture the work once, replay it for every chunk
    #[arg(long)]
    graph: bool,

    /// Write the graph to this file, for dot
    #[arg(long, value_name = "PATH", requires = "graph")]
    dot: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,

    /// Tell the process that watches this one
    #[arg(long, hide = true)]
    watched: bool,
}

impl Args {
    /// Whether another process watches this one.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched
    }
}

/// Enough to keep a device busy while the next chunks are read. The host device counts on the cores that read too: more
/// streams than one beyond them only push each other's chunks out of the cache.
fn usual_streams(kind: Option<Kind>) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if kind == Some(Kind::HOST) { (cores + 1).clamp(2, 4) } else { 4 }
}

/// Bytes, maybe with a binary unit.
fn chunk_size(text: &str) -> Result<usize, String> {
    match crate::size::parse(text).and_then(|size| usize::try_from(size).ok()) {
        Some(size) if (1..=MOST_CHUNK).contains(&size) => Ok(size),
        _ => Err("expected 1 byte to 1GiB, as 65536, 64KiB or 1M".to_owned()),
    }
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let reads = if args.file.as_deref() == Some(Path::new("-")) { Reads::Input } else { Reads::Nothing };
    if !args.watched
        && let Some(result) = work(reads, output)
    {
        return result;
    }
    let path = match &args.file {
        Some(path) => path.clone(),
        None => std::env::current_exe()
            .map_err(|error| Failure::new(Class::Input, format!("can't find this program's own file: {error}")))?,
    };
    let (runtime, fallback) = choose(args.backend.as_deref())?;
    let mut input = Input::open(&path)?;
    let device = describe(&runtime, fallback)?;
    if !output.is_json() {
        output.text(&opening(&input.name, &device))?;
    }

    let streams = args.streams.map_or_else(|| usual_streams(runtime.kind()), |streams| streams as usize);
    let plan = Plan { streams, chunk: args.chunk }.fit(input.len());
    let pipeline = Pipeline::new(&runtime, plan, args.graph)?;
    if let Some(path) = &args.dot {
        pipeline.dump(path)?;
    }
    let mut alongside = input.len().is_none().then(Counts::new);
    let mut progress = Progress::new(input.len(), output.is_json());
    let run = pipeline.run(&mut input, alongside.as_mut(), &mut progress)?;
    drop(progress);
    let check = match alongside {
        Some(counts) => Check::Alongside(counts),
        None => Check::SecondPass(single_thread(&mut input, plan.chunk)?),
    };

    let difference = run.counts.difference(check.counts());
    if difference.is_some() && matches!(check, Check::SecondPass(_)) && input.has_changed() {
        return Err(Failure::new(Class::Input, format!("{} changed while it was read; run again", input.name)));
    }
    let memory = MemoryDocument::read(&runtime)?;
    let told = Told { input: &input.name, plan, device: &device, run: &run, check: &check, memory };
    if output.is_json() {
        output.document(&told.document())?;
    } else {
        output.text(&told.text())?;
    }
    match difference {
        None => Ok(()),
        Some((byte, on_device, here)) => Err(Failure::new(
            Class::Wrong,
            format!("{} counted byte {byte} {on_device} times, one thread {here} times", device.name),
        )),
    }
}

/// The runtime to use, and why it is the host's if nobody named that. Tells of plugins that were refused: that another backend
/// is used may be their fault.
pub(crate) fn choose(backend: Option<&str>) -> Result<(Runtime, Option<String>), Failure> {
    let chosen = choose_silently(backend);
    let told = chosen.as_ref().err().map_or("", Failure::message);
    for LoadError { path, reason } in refusals() {
        let path = path.display().to_string();
        if !told.contains(&path) {
            note(&format!("{PLUGINS}: {path} is not used: {reason}"));
        }
    }
    if let Ok((runtime, _)) = &chosen {
        begins(runtime);
    }
    chosen
}

fn choose_silently(backend: Option<&str>) -> Result<(Runtime, Option<String>), Failure> {
    if let Some(name) = backend {
        let runtime = Runtime::builder().backend(name).build()?;
        if runtime.kind().is_some_and(|kind| kind.name() == name) && runtime.device_count() == 0 {
            unavailable(name, &format!("--backend {name}"))?;
        }
        return Ok((runtime, None));
    }
    let selection = selection();
    if let Some(error) = selection.error {
        return Err(error.into());
    }
    if let (Some(_), Some(name)) = (&selection.variable, selection.kind) {
        let runtime = Runtime::global();
        if !runtime.is_available() {
            unavailable(name.name(), &format!("{BACKEND}={name}"))?;
        }
        return Ok((runtime, None));
    }
    if Runtime::global().is_available() {
        return Ok((Runtime::global(), None));
    }
    let runtime = match Runtime::builder().backend(Kind::HOST.name()).build() {
        Ok(runtime) => runtime,
        Err(Error::UnknownBackend { .. }) => {
            return Err(Failure::new(Class::Device, "no accelerator found, and this build has no host device"));
        }
        Err(error) => return Err(error.into()),
    };
    if runtime.device_count() == 0 {
        unavailable(Kind::HOST.name(), "no accelerator found, and the built-in host device")?;
    }
    let hidden = backends().iter().filter(|backend| backend.chosen_by_itself).find_map(|backend| {
        let probe = backend.probe.as_ref()?;
        let masked = probe.visible == 0 && probe.present.is_some_and(|present| present > 0);
        masked.then(|| format!("{}: {}", backend.kind, why_none(backend).unwrap_or_default()))
    });
    let found = hidden.unwrap_or_else(|| "no accelerator found".to_owned());
    Ok((runtime, Some(format!("{found}; using the built-in host device"))))
}

/// Fails: a backend has no device.
fn unavailable(name: &str, asked: &str) -> Result<(), Failure> {
    let backends = backends();
    let backend = backends.iter().find(|backend| backend.kind.name() == name);
    let (why, variable) = backend.map_or_else(|| ("no device found".to_owned(), false), why_unavailable);
    let class = if variable { Class::Environment } else { Class::Device };
    Err(Failure::new(class, format!("{asked} has no device: {why}")))
}

fn describe(runtime: &Runtime, fallback: Option<String>) -> Result<DeviceDocument, Failure> {
    let index = runtime.current_device_index()?;
    let kind = runtime.kind().map_or("", Kind::name);
    let model = runtime.get_device_name(index)?;
    Ok(DeviceDocument { name: format!("{kind}:{index}"), model, fallback })
}

#[cfg(test)]
mod tests {
    use super::{MOST_CHUNK, chunk_size};

    #[test]
    fn sizes_have_binary_units() {
        for (text, size) in [
            ("1", 1),
            ("65536", 65536),
            ("64k", 64 << 10),
            ("64KiB", 64 << 10),
            ("3M", 3 << 20),
            ("2MiB", 2 << 20),
            ("1GiB", MOST_CHUNK),
            ("512B", 512),
        ] {
            assert_eq!(chunk_size(text), Ok(size), "{text}");
        }
        for text in
            ["", "0", "-1", "+1", "1.5M", "M", "1T", "2GiB", "1 M", "18446744073709551616", "18014398509481984K"]
        {
            assert!(chunk_size(text).is_err(), "{text:?}");
        }
    }
}
