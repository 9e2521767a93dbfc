//! The grammar of `ZE_AFFINITY_MASK`, made total: any text gives the devices that it leaves, or the item that can't be read.
//!
//! As the specification describes it and Intel's driver behaves: items are parted by commas. An item is the number of a device of
//! its driver, or of a device and of one of its tiles (`0.1`). Numbers are read like C's `strtoul` with base 0: `0x1` and `01` are
//! 1, and so is `1gpu`. What names nothing is passed over, what is named twice counts once, and the order of the items means
//! nothing: devices keep the driver's order. A comma may end the list, and a point an item. No text, or the text `default`,
//! hides nothing.
//!
//! What the numbers count depends on the [`Hierarchy`]. Where tiles are devices they count those, and an item with a tile
//! names nothing. Where cards are, a card of which one tile is left is that tile.
//!
//! An item that begins with no number, or has more than three of them, ends one or another version of Intel's driver, with an
//! exception that nobody catches. So here it is an error, which keeps the driver from being started.

use std::fmt;

/// What a driver counts as a device: `ZE_FLAT_DEVICE_HIERARCHY`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Hierarchy {
    /// Every tile is a device that knows of no card. What no variable says.
    #[default]
    Flat,
    /// Cards are devices, tiles are parts of them.
    Composite,
    /// Every tile is a device, and its card can be asked for.
    Combined,
}

impl Hierarchy {
    /// What a text chooses, of which drivers know three. They take any other for none.
    pub fn of(text: Option<&str>) -> Self {
        match text {
            Some("COMPOSITE") => Self::Composite,
            Some("COMBINED") => Self::Combined,
            _ => Self::Flat,
        }
    }

    /// Whether tiles are devices.
    pub const fn flat(self) -> bool {
        matches!(self, Self::Flat | Self::Combined)
    }
}

/// The most tiles that a card is taken to have. Cards of today have two.
const MOST_TILES: u32 = 64;

/// A device that is left visible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pick {
    /// The card's place in the driver's list.
    pub card: usize,
    /// The card's tiles that are left, a bit each. A card that is not made of tiles has one.
    pub tiles: u64,
    /// The tile that the device is, unless it is the card.
    pub tile: Option<u32>,
}

/// An item that can't be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Junk {
    /// The item.
    pub item: String,
    /// What is wrong with it.
    pub why: Why,
}

/// What is wrong with an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// A number is missing: the item, or what follows its point, does not begin with one.
    NoNumber,
    /// The number has no place in 64 bits.
    TooLarge,
    /// More than a device, a tile and a part of it.
    TooDeep,
}

impl fmt::Display for Junk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.why {
            Why::NoNumber => "does not begin with a number",
            Why::TooLarge => "is too large a number",
            Why::TooDeep => "has more than three numbers",
        };
        write!(f, "{:?} {why}", self.item)
    }
}

/// What a mask leaves.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Visible {
    /// The devices in their order.
    pub picks: Vec<Pick>,
    /// Items that name nothing here.
    pub idle: Vec<String>,
}

/// Applies a mask (`None`: the variable is not set) to the cards of one driver, in its order: how many tiles each one has, 0 and 1
/// both meaning that it is not made of tiles.
///
/// # Errors
/// The first item that can't be read, whatever is behind it.
pub fn visible(mask: Option<&str>, hierarchy: Hierarchy, cards: &[u32]) -> Result<Visible, Junk> {
    let counts: Vec<u32> = cards.iter().map(|&tiles| tiles.clamp(1, MOST_TILES)).collect();
    let (left, idle) = match mask {
        None | Some("" | "default") => (counts.iter().map(|&count| all(count)).collect(), Vec::new()),
        Some(mask) => left(mask, hierarchy, &counts)?,
    };
    let mut picks = Vec::new();
    for (card, (&count, &tiles)) in counts.iter().zip(&left).enumerate() {
        let parts = (0..count).filter(|tile| tiles & 1 << tile != 0);
        if tiles == 0 {
            continue;
        }
        if count == 1 {
            picks.push(Pick { card, tiles, tile: None });
        } else if hierarchy.flat() {
            picks.extend(parts.map(|tile| Pick { card, tiles: 1 << tile, tile: Some(tile) }));
        } else {
            let tile = if tiles.count_ones() == 1 { Some(tiles.trailing_zeros()) } else { None };
            picks.push(Pick { card, tiles, tile });
        }
    }
    Ok(Visible { picks, idle })
}

const fn all(count: u32) -> u64 {
    u64::MAX >> (MOST_TILES - count)
}

/// The tiles of each card that are left, and the items that name nothing.
fn left(mask: &str, hierarchy: Hierarchy, counts: &[u32]) -> Result<(Vec<u64>, Vec<String>), Junk> {
    let mut left = vec![0; counts.len()];
    let mut idle = Vec::new();
    // A comma may end the list.
    for item in mask.strip_suffix(',').unwrap_or(mask).split(',') {
        let numbers = numbers(item).map_err(|why| Junk { item: item.to_owned(), why })?;
        let named = match (&numbers[..], hierarchy.flat()) {
            (&[number], true) => flat(counts, number),
            (&[card], false) => counts.get(card as usize).map(|&count| (card as usize, all(count))),
            (&[card, tile], false) => {
                let has = counts.get(card as usize).is_some_and(|&count| tile < count);
                has.then(|| (card as usize, 1 << tile))
            }
            _ => None,
        };
        match named {
            Some((card, tiles)) => left[card] |= tiles,
            None => idle.push(item.to_owned()),
        }
    }
    Ok((left, idle))
}

/// The card and the tile of a number that counts tiles.
fn flat(counts: &[u32], number: u32) -> Option<(usize, u64)> {
    let mut before = 0;
    for (card, &count) in counts.iter().enumerate() {
        if number - before < count {
            return Some((card, 1 << (number - before)));
        }
        before += count;
        if number < before {
            break;
        }
    }
    None
}

/// The numbers of an item. A point may end it.
fn numbers(item: &str) -> Result<Vec<u32>, Why> {
    let numbers: Vec<u32> = item.strip_suffix('.').unwrap_or(item).split('.').map(number).collect::<Result<_, _>>()?;
    if numbers.len() > 3 { Err(Why::TooDeep) } else { Ok(numbers) }
}

/// The number that a text begins with, in the lower 32 bits of C's `strtoul` with base 0.
fn number(text: &str) -> Result<u32, Why> {
    let text = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let hexadecimal = digits.strip_prefix("0x").or(digits.strip_prefix("0X"));
    let (digits, radix) = match hexadecimal.filter(|rest| rest.starts_with(|c: char| c.is_ascii_hexdigit())) {
        Some(rest) => (rest, 16),
        None if digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    let end = digits.bytes().position(|byte| !char::from(byte).is_digit(radix)).unwrap_or(digits.len());
    if end == 0 {
        return Err(Why::NoNumber);
    }
    let value = u64::from_str_radix(&digits[..end], radix).map_err(|_| Why::TooLarge)?;
    Ok(if negative { value.wrapping_neg() } else { value } as u32)
}

/// Discrete cards hide those that share the host's memory: what is left of devices, each with whether it is such a one. The
/// runtime that users of these devices know does the same, so that `xpu:0` is the card one bought.
pub fn discrete_first<T>(devices: Vec<T>, integrated: impl Fn(&T) -> bool) -> Vec<T> {
    if devices.iter().all(&integrated) {
        return devices;
    }
    devices.into_iter().filter(|device| !integrated(device)).collect()
}

#[cfg(test)]
#[path = "mask_tests.rs"]
mod tests;
