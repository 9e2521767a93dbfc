//! What the fake is like: read from the environment once, and leaked, so that a forked child finds it without a lock.

use crate::abi::version;
use anyaccel_fake::failures::Failures;
use anyaccel_kit::Published;
use std::env;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// A card.
pub(crate) struct Card {
    pub(crate) name: String,
    /// Its place on the bus.
    pub(crate) place: u32,
    pub(crate) tiles: u32,
    pub(crate) integrated: bool,
    pub(crate) fp64: bool,
    /// Bytes of each tile.
    pub(crate) memory: u64,
    /// Bytes taken of each tile.
    pub(crate) used: Vec<AtomicU64>,
    pub(crate) lost: AtomicBool,
    /// Nanoseconds that its engines worked: compute, copy.
    pub(crate) busy: [AtomicU64; 2],
    /// Bytes that its copies read and wrote.
    pub(crate) moved: AtomicU64,
}

/// Bytes of the identity of a card, or of a tile of it.
pub(crate) fn uuid(place: u32, tile: Option<u32>) -> [u8; 16] {
    let mut bytes = [0x86, 0x80, 0, 0, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 0];
    // The first bytes differ, so that a short prefix names one card.
    bytes[2] = 0x20 + place as u8;
    bytes[15] = tile.map_or(0, |tile| 1 + tile as u8);
    bytes
}

/// The timer of the devices.
pub(crate) struct Timer {
    /// Ticks a second.
    pub(crate) frequency: u64,
    /// Bits of it that a host sees.
    pub(crate) bits: u32,
    /// Bits of it that events keep.
    pub(crate) kernel_bits: u32,
    /// Where it stands when the fake begins.
    pub(crate) start: u64,
}

/// What a driver may lack.
pub(crate) const FEATURES: &[&str] = &[
    "in_order",
    "virtual_memory",
    "host_function",
    "graph_exp",
    "graph_ext",
    "import",
    "sysman",
    "sysman_late",
    "fp16",
];

/// Everything that the variables say.
pub(crate) struct Config {
    pub(crate) cards: Vec<Card>,
    /// The version of the interface.
    pub(crate) api: u32,
    pub(crate) flat_by_default: bool,
    pub(crate) peers: bool,
    pub(crate) timer: Timer,
    /// Bytes of pinned memory of the host.
    pub(crate) host_memory: u64,
    without: Vec<String>,
    pub(crate) failures: Failures,
    /// Code that can't be built is found out when a kernel is made of it.
    pub(crate) lazy: bool,
    pub(crate) log: Option<std::fs::File>,
}

impl Config {
    /// Whether the driver has one of [`FEATURES`]; it lacks all that begin with what it was told to lack.
    pub(crate) fn has(&self, feature: &str) -> bool {
        debug_assert!(FEATURES.contains(&feature));
        self.without.iter().all(|lacking| !feature.starts_with(lacking.as_str()))
    }

    pub(crate) fn in_order(&self) -> bool {
        self.api >= version(1, 9) && self.has("in_order")
    }
}

static CONFIG: Published<Config> = Published::new();

/// The configuration of this process.
pub(crate) fn config() -> &'static Config {
    CONFIG.get().unwrap_or_else(|| CONFIG.publish(read()))
}

fn read() -> Config {
    let text = |name: &str| env::var(format!("ANYACCEL_FAKE_ZE_{name}")).ok();
    let memory = text("MEMORY").and_then(|bytes| bytes.parse().ok()).unwrap_or(1 << 30);
    let devices = text("DEVICES").unwrap_or_else(|| "Fake XPU,Fake XPU".into());
    let cards = devices.split(',').filter(|text| !text.is_empty()).enumerate();
    let (major, minor) = text("API").and_then(|text| numbers(&text)).unwrap_or((1, 13));
    let log = text("LOG").and_then(|path| std::fs::OpenOptions::new().create(true).append(true).open(path).ok());
    Config {
        cards: cards.map(|(place, text)| card(text, place as u32, memory)).collect(),
        api: version(major, minor),
        flat_by_default: text("HIERARCHY").is_none_or(|text| text != "COMPOSITE"),
        peers: text("PEERS").as_deref() != Some("0"),
        timer: timer(&text("TIMER").unwrap_or_default()),
        host_memory: text("HOST_MEMORY").and_then(|bytes| bytes.parse().ok()).unwrap_or(u64::MAX),
        without: text("WITHOUT")
            .unwrap_or_default()
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
        failures: Failures::new(&text("FAIL").unwrap_or_default()),
        lazy: text("LAZY").as_deref() == Some("1"),
        log,
    }
}

/// A card, as the variable says it.
pub(crate) fn card(text: &str, place: u32, memory: u64) -> Card {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default().to_owned();
    let marks: Vec<&str> = parts.collect();
    let tiles = marks.iter().find_map(|mark| mark.strip_prefix("tiles")?.parse().ok()).unwrap_or(1).clamp(1, 16);
    Card {
        name,
        place,
        tiles,
        integrated: marks.contains(&"integrated"),
        fp64: !marks.contains(&"no64"),
        memory,
        used: (0..tiles).map(|_| AtomicU64::new(0)).collect(),
        lost: AtomicBool::new(false),
        busy: [AtomicU64::new(0), AtomicU64::new(0)],
        moved: AtomicU64::new(0),
    }
}

fn timer(text: &str) -> Timer {
    let numbers: Vec<u64> = text.split(':').map_while(|number| number.parse().ok()).collect();
    let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
    Timer {
        frequency: number(0, 19_200_000).max(1),
        bits: number(1, 36).clamp(1, 64) as u32,
        kernel_bits: number(2, 32).clamp(1, 64) as u32,
        start: number(3, 0),
    }
}

fn numbers(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
