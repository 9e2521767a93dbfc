//! `anyaccel tune`: the settings under which a recorded program would fit.

use crate::layout::{bytes, counted, item, table};
use crate::output::{Class, Failure, Output, one_line};
use crate::progress::Progress;
use crate::snapshot_file::wrong_settings;
use crate::{size, snapshot_file};
use anyaccel_snapshot::tune::{CANDIDATES, Candidate, Tuning, candidates, tune};
use serde::Serialize;
use std::path::PathBuf;

const LONG: &str = "\
Searches the settings of the caching allocator under which a recorded program
gets through with a given amount of memory: replays the history under each, on
devices that are only numbers, and ranks them. First come those that get
through, among them those with the fewest retries (each stalls the program),
then those that leave the most memory to spare.

SNAPSHOT is what torch.cuda.memory._dump_snapshot or this project's
dump_snapshot wrote, plain or gzip; - is standard input.

Example:
  $ anyaccel tune oom.pickle --memory 24GiB

JSON (schema anyaccel.tune.v1), sizes in bytes:
  memory                what each device has
  best                  the best candidate, null if none gets through
  least_memory          with which the best still gets through, to 1 %
  default               how the defaults do
  candidates[]          settings, fits, oom (device, event), done (share of the
                        history), peak_allocated, peak_reserved, margin,
                        retries, device_calls; the best first
  environment           what to set, for PyTorch and for this project

Exit code: 0 if a setting gets through, 1 if none does or the file can't be
read, 2 for bad arguments.";

/// Runners-up in text.
const RUNNERS_UP: usize = 5;

/// Find the settings under which a recorded program fits
#[derive(clap::Args, Debug)]
#[command(long_about = LONG)]
pub(crate) struct Args {
    /// The snapshot, - for standard input
    #[arg(value_name = "SNAPSHOT")]
    file: PathBuf,

    /// Memory of each device, as 24GiB
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = size::memory)]
    memory: u64,

    /// How many settings to try
    #[arg(long, value_name = "N", default_value_t = CANDIDATES as u16, allow_hyphen_values = true,
          value_parser = size::whole::<u16>(1..=1000))]
    settings: u16,

    /// A setting to try besides, as often as wanted
    #[arg(long, value_name = "SETTINGS")]
    conf: Vec<String>,

    /// Threads; as many as there are cores
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = size::whole::<u16>(1..=256))]
    threads: Option<u16>,

    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    memory: u64,
    best: Option<Row<'a>>,
    least_memory: Option<u64>,
    default: Row<'a>,
    candidates: Vec<Row<'a>>,
    environment: Option<[String; 2]>,
    caveats: Vec<String>,
}

#[derive(Serialize)]
struct Row<'a> {
    settings: &'a str,
    fits: bool,
    oom: Option<Place>,
    done: f64,
    peak_allocated: u64,
    peak_reserved: u64,
    margin: u64,
    retries: u64,
    device_calls: u64,
}

#[derive(Serialize)]
struct Place {
    device: usize,
    event: usize,
}

impl<'a> From<&'a Candidate> for Row<'a> {
    fn from(candidate: &'a Candidate) -> Self {
        Row {
            settings: &candidate.settings,
            fits: candidate.fits,
            oom: candidate.oom.map(|(device, event)| Place { device, event }),
            done: candidate.done,
            peak_allocated: candidate.peak_allocated,
            peak_reserved: candidate.peak_reserved,
            margin: candidate.margin,
            retries: candidate.retries,
            device_calls: candidate.device_calls,
        }
    }
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    for text in &args.conf {
        anyaccel_engine::alloc::Settings::parse(text).map_err(|error| wrong_settings("--conf", &error))?;
    }
    let (snapshot, name) = snapshot_file::read(&args.file)?;
    let histories = snapshot_file::histories(&snapshot, &name)?;
    let mut settings = candidates(usize::from(args.settings));
    settings.extend(args.conf.iter().filter(|text| !text.is_empty()).cloned());
    let threads = args.threads.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let mut progress = Progress::counting(settings.len() as u64, "settings", output.is_json());
    let tuning = tune(&histories, args.memory, &settings, threads, &mut |done| {
        progress.at(done as u64);
        true
    });
    drop(progress);
    let Some(tuning) = tuning else {
        return Err(Failure::new(Class::Input, format!("{name}: nothing could be tried")));
    };
    let mut caveats: Vec<String> =
        histories.iter().flat_map(|history| snapshot_file::caveats(history.caveats())).collect();
    if histories.iter().any(|history| history.caveats().waiting_blocks > 0) {
        caveats.push("blocks wait for other streams, and how long is not known under pressure: leave a margin".into());
    }
    if output.is_json() {
        output.document(&Document {
            schema: "anyaccel.tune.v1",
            memory: tuning.total,
            best: tuning.best().map(Row::from),
            least_memory: tuning.least_memory,
            default: Row::from(&tuning.default),
            candidates: tuning.candidates.iter().map(Row::from).collect(),
            environment: tuning.best().map(|best| environment(&best.settings)),
            caveats,
        })?;
    } else {
        output.text(&told(&tuning, &name, &caveats))?;
    }
    if tuning.best().is_some() {
        return Ok(());
    }
    let tried = tuning.candidates.len();
    let failed = format!("{name} gets through with {} under none of {tried} settings", bytes(tuning.total));
    Err(Failure::new(Class::Wrong, failed))
}

/// What to set. PyTorch's older variable wins over its newer one, and is known to all versions.
fn environment(settings: &str) -> [String; 2] {
    [format!("PYTORCH_CUDA_ALLOC_CONF={settings}"), format!("ANYACCEL_ALLOC_CONF={settings}")]
}

fn named(settings: &str) -> String {
    if settings.is_empty() { "the defaults".to_owned() } else { one_line(settings) }
}

fn told(tuning: &Tuning, name: &str, caveats: &[String]) -> String {
    const LABEL: usize = 8;
    let total = tuning.total;
    let mut text = item(0, "history", LABEL, name);
    text.push_str(&item(0, "memory", LABEL, &bytes(total)));
    text.push_str(&item(0, "tried", LABEL, &counted(tuning.candidates.len() as u64, "setting", "settings")));
    text.push('\n');
    let default = &tuning.default;
    let defaults = if default.fits {
        format!("get through with {} to spare, {}", bytes(default.margin), retries(default.retries))
    } else {
        let (device, event) = default.oom.unwrap_or_default();
        format!("run out of memory on device {device} at event {event}, {:.0} % through", default.done * 100.0)
    };
    text.push_str(&item(0, "defaults", LABEL, &defaults));
    let Some(best) = tuning.best() else {
        if let Some(farthest) = tuning.candidates.first() {
            let said = format!("{}: {:.0} % through", named(&farthest.settings), farthest.done * 100.0);
            text.push_str(&item(0, "farthest", LABEL, &said));
        }
        return text;
    };
    text.push_str(&item(0, "best", LABEL, &named(&best.settings)));
    let share = best.margin as f64 / total as f64 * 100.0;
    let least = match tuning.least_memory {
        Some(least) if least < total => format!("; it would still get through with {}", bytes(least)),
        _ => String::new(),
    };
    let margin = format!(
        "{} to spare ({share:.1} %): {} reserved at the peak, {} in use, {}{least}",
        bytes(best.margin),
        bytes(best.peak_reserved),
        bytes(best.peak_allocated),
        retries(best.retries)
    );
    text.push_str(&item(0, "margin", LABEL, &margin));
    if best.settings.is_empty() {
        text.push_str("\nNothing needs to be set.\n");
    } else {
        let [pytorch, ours] = environment(&best.settings);
        text.push_str(&format!("\nPyTorch:   export {pytorch}\nanyaccel:  export {ours}\n"));
    }
    text.push_str(&runners_up(tuning));
    for caveat in caveats {
        text.push('\n');
        text.push_str(&item(0, "note", 4, caveat));
    }
    text
}

fn retries(count: u64) -> String {
    counted(count, "retry", "retries")
}

fn runners_up(tuning: &Tuning) -> String {
    let others: Vec<&Candidate> = tuning.candidates.iter().skip(1).filter(|c| c.fits).take(RUNNERS_UP).collect();
    if others.is_empty() {
        return "\nNo other setting gets through.\n".to_owned();
    }
    let rows: Vec<[String; 5]> = others
        .iter()
        .enumerate()
        .map(|(at, candidate)| {
            let calls = candidate.device_calls.to_string();
            [
                format!("#{}", at + 2),
                bytes(candidate.margin),
                bytes(candidate.peak_reserved),
                candidate.retries.to_string(),
                calls,
            ]
        })
        .collect();
    let mut text = format!("\nRunners-up\n\n{}\n", table(["rank", "spare", "reserved", "retries", "calls"], &rows));
    for (at, candidate) in others.iter().enumerate() {
        text.push_str(&item(0, &format!("#{}", at + 2), 3, &named(&candidate.settings).replace(',', ", ")));
    }
    let through = tuning.candidates.iter().filter(|candidate| candidate.fits).count();
    text.push_str(&format!("\n{through} of {} settings get through.\n", tuning.candidates.len()));
    text
}
