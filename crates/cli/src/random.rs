//! `anyaccel random`: random numbers, drawn on a device, for anyone to compare.

use crate::demo::choose;
use crate::output::{Class, Failure, Output};
use crate::size::whole;
use crate::watched::{Reads, work};
use anyaccel::random::{Distribution, Generator, Layout, Options, Seed, State};
use anyaccel::{DType, Error, Kind, Runtime};
use clap::ValueEnum;
use serde::Serialize;
use std::fmt;

/// More would be a stream of numbers to keep in a file, which is not what this is for.
const MOST: u64 = 1 << 24;

/// Text is written when it has grown so far.
const BLOCK: usize = 64 << 10;

const LONG: &str = "\
Draws random numbers on a device and prints them, one a line: with the same
arguments the same on every backend, for they depend on seed and offset alone.

Numbers begin at an offset (in words, a multiple of 4) of the sequence that
belongs to the seed. In the portable layout element i depends on seed, offset
and i. The layout torch-cuda is the order of torch.cuda on a device with so many
multiprocessors of so many threads, as torch-cuda:108x2048, which is also what
torch-cuda alone means: the fill of a generator with that seed and offset.

Distributions and what they take:
  bits                integers
  uniform             floats; --from, below --to
  normal              floats; --mean, --std
  log-normal          floats; --mean, --std of the logarithms
  exponential         floats; --lambda
  geometric           floats, integers; --p
  bernoulli           floats, integers, bool; --p
  integers            floats, integers, bool; --from, below --to
  whole-numbers       floats, integers, bool
  permutation         integers of 32 and 64 bits; in the portable layout

Without --backend it uses the accelerator that anyaccel info shows as chosen;
if there is none, the built-in host device. Where ANYACCEL_PLUGINS names
libraries the work is done in a process of its own: one that takes it down is
told by its name.

Example:
  $ anyaccel random uniform --seed 0 -n 10 --layout torch-cuda
  $ anyaccel random integers --from 1 --to 7 -n 1000 | sort | uniq -c
  $ anyaccel random normal --seed 7 --json | jq '.values | add / length'

JSON (schema anyaccel.random.v1):
  distribution, dtype, layout, device, seed
  offset        where the numbers begin
  next_offset   where the generator is afterwards
  values[]      numbers; null is one that is not finite

Exit code: 0; 1 if the device failed; 2 for bad arguments.";

/// Print random numbers, the same on every device
#[derive(clap::Args, Debug)]
#[command(long_about = LONG)]
pub(crate) struct Args {
    /// What to draw from: bits, uniform, normal, and more in --help
    #[arg(value_enum, hide_possible_values = true)]
    distribution: Name,

    /// The seed, -2^63 to 2^64 - 1
    #[arg(long, value_name = "S", default_value_t = 0, allow_hyphen_values = true, 
          value_parser = integer("an integer from -2^63 to 2^64 - 1"))]
    seed: i128,

    /// Where to begin, a multiple of 4
    #[arg(long, value_name = "O", default_value_t = 0, allow_hyphen_values = true,
          value_parser = integer("a multiple of 4 from 0 to 2^63 - 4"))]
    offset: i128,

    /// How many numbers, at most 16777216
    #[arg(short = 'n', long = "count", value_name = "N", default_value_t = 10,
          allow_hyphen_values = true, value_parser = whole::<u64>(0..=MOST))]
    count: u64,

    /// portable or torch-cuda[:SIZE]
    #[arg(long, value_name = "L", default_value = "portable", value_parser = layout)]
    layout: Layout,

    /// Type of the numbers [default: float32, int64, uint32]
    #[arg(long, value_name = "T", value_parser = dtype)]
    dtype: Option<DType>,

    /// Smallest number [default: 0]
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    from: Option<String>,

    /// Above the largest number [default: 1; integers: 100]
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    to: Option<String>,

    /// Mean [default: 0]
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    mean: Option<f64>,

    /// Standard deviation [default: 1]
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    std: Option<f64>,

    /// 1 / mean [default: 1]
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    lambda: Option<f64>,

    /// Probability of a success [default: 0.5]
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    p: Option<f64>,

    /// The backend, by name
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,

    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,

    /// Tell the process that watches this one
    #[arg(long, hide = true)]
    watched: bool,
}

/// The distributions by name.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Name {
    Bits,
    Uniform,
    Normal,
    LogNormal,
    Exponential,
    Geometric,
    Bernoulli,
    Integers,
    WholeNumbers,
    Permutation,
}

impl Name {
    fn text(self) -> String {
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
    }

    /// The type drawn if none is named.
    const fn dtype(self) -> DType {
        match self {
            Self::Bits => DType::U32,
            Self::Integers | Self::WholeNumbers | Self::Permutation => DType::I64,
            _ => DType::F32,
        }
    }

    /// The options that it has.
    const fn takes(self) -> &'static [&'static str] {
        match self {
            Self::Uniform | Self::Integers => &["--from", "--to"],
            Self::Normal | Self::LogNormal => &["--mean", "--std"],
            Self::Exponential => &["--lambda"],
            Self::Geometric | Self::Bernoulli => &["--p"],
            Self::Bits | Self::WholeNumbers | Self::Permutation => &[],
        }
    }
}

/// The document of `random --json`.
#[derive(Serialize)]
struct Document<'a> {
    /// `anyaccel.random.v1`.
    schema: &'static str,
    /// What was drawn from.
    distribution: Name,
    /// Type of the numbers.
    dtype: &'static str,
    /// The order.
    layout: String,
    /// Where they were drawn.
    device: String,
    /// The seed, modulo 2^64.
    seed: u64,
    /// Where they begin.
    offset: u64,
    /// Where the generator is afterwards.
    next_offset: u64,
    /// The numbers.
    values: &'a [Number],
}

/// A number, printed with as many digits as its type needs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(untagged)]
enum Number {
    Single(f32),
    Double(f64),
    Signed(i64),
    Unsigned(u64),
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single(number) => number.fmt(f),
            Self::Double(number) => number.fmt(f),
            Self::Signed(number) => number.fmt(f),
            Self::Unsigned(number) => number.fmt(f),
        }
    }
}

/// A parser of integers whose range the runtime knows.
fn integer(expected: &'static str) -> impl Fn(&str) -> Result<i128, String> + Clone {
    move |text| text.parse().map_err(|_| format!("expected {expected}"))
}

fn layout(text: &str) -> Result<Layout, String> {
    let torch_cuda = |multiprocessors, threads_per_multiprocessor| {
        Ok(Layout::TorchCuda { multiprocessors, threads_per_multiprocessor })
    };
    if text == "portable" {
        return Ok(Layout::Portable);
    }
    if text == "torch-cuda" {
        return torch_cuda(108, 2048);
    }
    let numbers = text.strip_prefix("torch-cuda:").and_then(|size| size.split_once('x'));
    match numbers.map(|(multiprocessors, threads)| (multiprocessors.parse(), threads.parse())) {
        Some((Ok(multiprocessors), Ok(threads))) => torch_cuda(multiprocessors, threads),
        _ => {
            Err("expected portable, torch-cuda, or torch-cuda with a device's size, as torch-cuda:108x2048".to_owned())
        }
    }
}

fn layout_text(layout: Layout) -> String {
    match layout {
        Layout::Portable => "portable".to_owned(),
        Layout::TorchCuda { multiprocessors, threads_per_multiprocessor } => {
            format!("torch-cuda:{multiprocessors}x{threads_per_multiprocessor}")
        }
    }
}

fn dtype(text: &str) -> Result<DType, String> {
    text.parse().map_err(|_| {
        let simple = DType::ALL.iter().filter(|dtype| !dtype.is_complex());
        let names: Vec<&str> = simple.map(|dtype| dtype.name()).collect();
        format!("expected a type, one of {}", names.join(", "))
    })
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let distribution = args.distribution()?;
    let dtype = args.dtype.unwrap_or(args.distribution.dtype());
    let generator = Generator::seeded(Seed::from(args.seed)).map_err(refused)?;
    generator.set_offset(args.offset).map_err(refused)?;
    let start = generator.state();
    if !args.watched
        && let Some(result) = work(Reads::Nothing, output)
    {
        return result;
    }
    let (runtime, _fallback) = choose(args.backend.as_deref())?;
    let numbers = draw(&runtime, args, dtype, distribution, &generator)?;
    if output.is_json() {
        let device = format!("{}:{}", runtime.kind().map_or("", Kind::name), runtime.current_device_index()?);
        return output.document(&args.document(dtype, device, start, generator.offset(), &numbers));
    }
    let mut text = String::new();
    for number in &numbers {
        text.push_str(&format!("{number}\n"));
        if text.len() >= BLOCK {
            output.text(&text)?;
            text.clear();
        }
    }
    output.text(&text)
}

/// Draws, and brings the numbers here in a type that can be printed.
fn draw(
    runtime: &Runtime,
    args: &Args,
    dtype: DType,
    distribution: Distribution,
    generator: &Generator,
) -> Result<Vec<Number>, Failure> {
    let stream = runtime.current_stream(())?;
    let drawn = runtime.alloc(args.count * dtype.size() as u64)?;
    let options = Options { generator: Some(generator), layout: args.layout };
    stream.random(&drawn.all(), dtype, distribution, &options).map_err(refused)?;
    let printed = match dtype {
        DType::F64 => DType::F64,
        DType::U64 => DType::U64,
        DType::F16 | DType::Bf16 | DType::F32 => DType::F32,
        _ => DType::I64,
    };
    let wide = runtime.alloc(args.count * printed.size() as u64)?;
    stream.convert(&wide.all(), printed, &drawn.all(), dtype)?;
    let bytes = wide.to_vec()?;
    let longs = || bytes.as_chunks::<8>().0.iter().copied();
    Ok(match printed {
        DType::F32 => bytes.as_chunks().0.iter().map(|&bytes| Number::Single(f32::from_le_bytes(bytes))).collect(),
        DType::F64 => longs().map(|bytes| Number::Double(f64::from_le_bytes(bytes))).collect(),
        DType::U64 => longs().map(|bytes| Number::Unsigned(u64::from_le_bytes(bytes))).collect(),
        _ => longs().map(|bytes| Number::Signed(i64::from_le_bytes(bytes))).collect(),
    })
}

/// What the runtime says of numbers that came from the command line is about the command line.
fn refused(error: Error) -> Failure {
    match error {
        Error::Generator(_) | Error::Random(_) => Failure::new(Class::Usage, error.to_string()),
        other => other.into(),
    }
}

impl Args {
    /// Whether another process watches this one.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched
    }

    fn distribution(&self) -> Result<Distribution, Failure> {
        let given = [
            ("--from", self.from.is_some()),
            ("--to", self.to.is_some()),
            ("--mean", self.mean.is_some()),
            ("--std", self.std.is_some()),
            ("--lambda", self.lambda.is_some()),
            ("--p", self.p.is_some()),
        ];
        let takes = self.distribution.takes();
        if let Some((option, _)) = given.iter().find(|(option, given)| *given && !takes.contains(option)) {
            let takes = if takes.is_empty() { "neither it nor another".to_owned() } else { takes.join(" and ") };
            let name = self.distribution.text();
            return Err(Failure::new(Class::Usage, format!("{option} is not for {name}, which takes {takes}")));
        }
        let (mean, std) = (self.mean.unwrap_or(0.0), self.std.unwrap_or(1.0));
        let p = self.p.unwrap_or(0.5);
        Ok(match self.distribution {
            Name::Bits => Distribution::Bits,
            Name::Uniform => {
                Distribution::Uniform { from: bound("--from", &self.from, 0.0)?, to: bound("--to", &self.to, 1.0)? }
            }
            Name::Normal => Distribution::Normal { mean, std },
            Name::LogNormal => Distribution::LogNormal { mean, std },
            Name::Exponential => Distribution::Exponential { lambda: self.lambda.unwrap_or(1.0) },
            Name::Geometric => Distribution::Geometric { p },
            Name::Bernoulli => Distribution::Bernoulli { p },
            Name::Integers => {
                Distribution::Integers { from: bound("--from", &self.from, 0)?, to: bound("--to", &self.to, 100)? }
            }
            Name::WholeNumbers => Distribution::WholeNumbers,
            Name::Permutation => Distribution::Permutation,
        })
    }

    fn document<'a>(
        &self,
        dtype: DType,
        device: String,
        start: State,
        next_offset: u64,
        values: &'a [Number],
    ) -> Document<'a> {
        Document {
            schema: "anyaccel.random.v1",
            distribution: self.distribution,
            dtype: dtype.name(),
            layout: layout_text(self.layout),
            device,
            seed: start.seed(),
            offset: start.offset(),
            next_offset,
            values,
        }
    }
}

fn bound<T: std::str::FromStr>(option: &str, text: &Option<String>, usual: T) -> Result<T, Failure> {
    let Some(text) = text else { return Ok(usual) };
    let whole = if std::any::type_name::<T>() == "i128" { "an integer" } else { "a number" };
    text.parse().map_err(|_| Failure::new(Class::Usage, format!("{option} '{text}': expected {whole}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_read_as_they_are_written() {
        for text in ["portable", "torch-cuda:108x2048", "torch-cuda:1x256"] {
            assert_eq!(layout(text).map(layout_text), Ok(text.to_owned()));
        }
        assert_eq!(layout("torch-cuda"), layout("torch-cuda:108x2048"));
        for bad in
            ["", "cuda", "torch-cuda:", "torch-cuda:108", "torch-cuda:ax2048", "torch-cuda:108x", "torch-cuda:-1x1"]
        {
            assert!(layout(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_have_the_digits_of_their_type() {
        assert_eq!(Number::Single(0.1).to_string(), "0.1");
        assert_eq!(Number::Double(0.1_f32.into()).to_string(), "0.10000000149011612");
        assert_eq!(Number::Unsigned(u64::MAX).to_string(), "18446744073709551615");
        assert_eq!(serde_json::to_string(&[Number::Single(0.1), Number::Signed(-3)]).ok().as_deref(), Some("[0.1,-3]"));
    }
}
