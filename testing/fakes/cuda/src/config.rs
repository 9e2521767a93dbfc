//! What the fake is like: read from the environment once, and leaked, so that a forked child finds it without a lock.

use anyaccel_fake::failures::Failures;
use anyaccel_kit::Published;
use std::env;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A card.
pub(crate) struct Card {
    pub(crate) name: String,
    pub(crate) major: i32,
    pub(crate) minor: i32,
    /// Instances that it is cut into; 0: it is whole.
    pub(crate) instances: u32,
    /// Its place on the bus.
    pub(crate) place: u32,
    pub(crate) memory: u64,
    pub(crate) used: AtomicU64,
    /// The code that every call returns since the card was lost; 0 while it lives.
    pub(crate) lost: AtomicU32,
}

/// Bytes of the identity of a card, or of an instance of it.
pub(crate) fn uuid(place: u32, instance: Option<u32>) -> [u8; 16] {
    let mut bytes = [0xfa, 0xce, 0, 0, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 0];
    // The first bytes differ, so that a short prefix names one card.
    bytes[2] = 0x10 + place as u8;
    bytes[15] = instance.map_or(0, |instance| 1 + instance as u8);
    bytes
}

/// The same in text.
pub(crate) fn uuid_text(place: u32, instance: Option<u32>) -> String {
    let prefix = if instance.is_some() { "MIG" } else { "GPU" };
    format!("{prefix}-{}", anyaccel_hal::Uuid(uuid(place, instance)))
}

/// Everything that the variables say.
pub(crate) struct Config {
    pub(crate) cards: Vec<Card>,
    pub(crate) driver: (u32, u32),
    pub(crate) peers: bool,
    /// Events can be opened by other processes.
    pub(crate) ipc: bool,
    pub(crate) failures: Failures,
    pub(crate) log: Option<std::fs::File>,
    /// Calls after the driver has shut down end the process.
    pub(crate) late: bool,
}

static CONFIG: Published<Config> = Published::new();

/// The configuration of this process.
pub(crate) fn config() -> &'static Config {
    CONFIG.get().unwrap_or_else(|| CONFIG.publish(read()))
}

fn read() -> Config {
    let text = |name: &str| env::var(format!("ANYACCEL_FAKE_CUDA_{name}")).ok();
    let memory = text("MEMORY").and_then(|bytes| bytes.parse().ok()).unwrap_or(1 << 30);
    let devices = text("DEVICES").unwrap_or_else(|| "Fake GPU:9.0,Fake GPU:9.0".into());
    let cards = devices.split(',').filter(|text| !text.is_empty()).enumerate();
    let driver = text("DRIVER").and_then(|version| numbers(&version)).unwrap_or((12, 2));
    let failures = text("FAIL").unwrap_or_default();
    let log = text("LOG").and_then(|path| std::fs::OpenOptions::new().create(true).append(true).open(path).ok());
    Config {
        cards: cards.map(|(place, text)| card(text, place as u32, memory)).collect(),
        driver,
        peers: text("PEERS").as_deref() != Some("0"),
        ipc: text("IPC").as_deref() != Some("0"),
        failures: Failures::new(&failures),
        log,
        late: text("LATE").as_deref() == Some("abort"),
    }
}

fn card(text: &str, place: u32, memory: u64) -> Card {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default().to_owned();
    let (major, minor) = parts.next().and_then(numbers).unwrap_or((9, 0));
    let instances = parts.next().and_then(|text| text.strip_prefix("mig")?.parse().ok()).unwrap_or(0);
    let (used, lost) = (AtomicU64::new(0), AtomicU32::new(0));
    Card { name, major: major as i32, minor: minor as i32, instances, place, memory, used, lost }
}

fn numbers(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// A device as a process sees it: a card, or an instance of one.
#[derive(Clone, Copy)]
pub(crate) struct Visible {
    pub(crate) card: &'static Card,
    pub(crate) instance: Option<u32>,
}

impl Visible {
    pub(crate) fn uuid(self) -> [u8; 16] {
        uuid(self.card.place, self.instance)
    }
}

/// The devices in the order in which the driver counts them: the fastest first, or by the bus.
pub(crate) fn ordered() -> Vec<&'static Card> {
    let mut cards: Vec<&'static Card> = config().cards.iter().collect();
    if env::var("CUDA_DEVICE_ORDER").as_deref() != Ok("PCI_BUS_ID") {
        cards.sort_by_key(|card| std::cmp::Reverse((card.major, card.minor)));
    }
    cards
}

/// The devices that a driver which starts now would count.
///
/// The grammar is written out here once more, as the vendor describes it, so that a test can find the two to differ.
pub(crate) fn visible() -> Vec<Visible> {
    let cards = ordered();
    let whole = |card: &&'static Card| card.instances == 0;
    let first_instance = cards.iter().find(|card| card.instances > 0).map(|card| Visible { card, instance: Some(0) });
    let Ok(mask) = env::var("CUDA_VISIBLE_DEVICES") else {
        return match first_instance {
            Some(instance) => vec![instance],
            None => cards.into_iter().map(|card| Visible { card, instance: None }).collect(),
        };
    };
    let mut found: Vec<Visible> = Vec::new();
    let by_name = mask.starts_with("GPU-") || mask.starts_with("MIG-");
    for item in mask.split(',') {
        let named = if by_name { by_uuid(&cards, item) } else { by_index(&cards, item) };
        let Some(named) = named else { break };
        if found.iter().any(|other| other.uuid() == named.uuid()) {
            return Vec::new();
        }
        found.push(named);
    }
    match found.iter().position(|device| device.instance.is_some()) {
        Some(at) => vec![found[at]],
        None => found.into_iter().filter(|device| whole(&device.card)).collect(),
    }
}

fn by_index(cards: &[&'static Card], item: &str) -> Option<Visible> {
    let item = item.trim();
    let digits = item.strip_prefix('+').unwrap_or(item);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let index: usize = digits[..end].parse().ok()?;
    let card = *cards.get(index)?;
    Some(Visible { card, instance: (card.instances > 0).then_some(0) })
}

fn by_uuid(cards: &[&'static Card], item: &str) -> Option<Visible> {
    let item = item.trim();
    if item == "GPU-" || item == "MIG-" {
        return None;
    }
    let mut all = Vec::new();
    for card in cards {
        all.push((uuid_text(card.place, None), Visible { card, instance: (card.instances > 0).then_some(0) }));
        for instance in 0..card.instances {
            all.push((uuid_text(card.place, Some(instance)), Visible { card, instance: Some(instance) }));
        }
    }
    let mut fits = all.into_iter().filter(|(text, _)| text.starts_with(item));
    let first = fits.next()?;
    fits.next().is_none().then_some(first.1)
}
