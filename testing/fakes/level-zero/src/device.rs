//! Devices as a process sees them: cards or tiles of cards, by the hierarchy and the mask that it asked for.

use crate::abi::{Handle, ZE_RESULT_ERROR_INVALID_ARGUMENT, ZE_RESULT_ERROR_INVALID_NULL_HANDLE};
use crate::call::Result;
use crate::config::{Card, config, uuid};
use anyaccel_kit::Published;
use std::env;
use std::ptr;

/// The only driver.
pub(crate) const DRIVER: Handle = 0x00D1_0000_0000;
const FIRST: Handle = 0x00DE_0000_0000;

/// A device: all of a card, or some of its tiles.
pub(crate) struct Device {
    pub(crate) handle: Handle,
    pub(crate) card: &'static Card,
    /// Which tiles it has.
    pub(crate) tiles: Vec<u32>,
    /// Whether it says of itself that it is part of another.
    pub(crate) is_part: bool,
    /// The device that it is part of, where that can be asked.
    pub(crate) root: Option<Handle>,
    /// The devices that it has.
    pub(crate) parts: Vec<&'static Device>,
}

impl Device {
    /// The tile that it is, if it is one of several.
    pub(crate) fn tile(&self) -> Option<u32> {
        match self.tiles[..] {
            [tile] if self.card.tiles > 1 => Some(tile),
            _ => None,
        }
    }

    pub(crate) fn uuid(&self) -> [u8; 16] {
        uuid(self.card.place, self.tile())
    }

    pub(crate) fn memory(&self) -> u64 {
        self.card.memory * self.tiles.len() as u64
    }

    /// Whether one reaches the memory of the other.
    pub(crate) fn reaches(&self, other: &Device) -> bool {
        ptr::eq(self.card, other.card) || config().peers
    }
}

/// What the driver found when it started.
pub(crate) struct View {
    /// What it counts.
    pub(crate) devices: Vec<&'static Device>,
    all: Vec<&'static Device>,
}

static VIEW: Published<View> = Published::new();

/// What the driver found, once it has started.
pub(crate) fn view() -> Option<&'static View> {
    VIEW.get()
}

pub(crate) fn get(handle: Handle) -> Result<&'static Device> {
    if handle == 0 {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    }
    let all = view().map_or(&[][..], |view| &view.all);
    all.iter().find(|device| device.handle == handle).copied().ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)
}

/// Looks for devices, the first time; says how many there are. `None`: the mask is not one that the driver can read.
pub(crate) fn start() -> Option<usize> {
    let view = VIEW.get_or_make(|| look().ok_or(())).ok()?;
    Some(view.devices.len())
}

#[derive(Clone, Copy, PartialEq)]
enum Hierarchy {
    Composite,
    Flat,
    Combined,
}

fn hierarchy() -> Hierarchy {
    match env::var("ZE_FLAT_DEVICE_HIERARCHY").as_deref() {
        Ok("COMPOSITE") => Hierarchy::Composite,
        Ok("FLAT") => Hierarchy::Flat,
        Ok("COMBINED") => Hierarchy::Combined,
        _ if config().flat_by_default => Hierarchy::Flat,
        _ => Hierarchy::Composite,
    }
}

/// The cards in the order in which the driver counts them.
fn ordered() -> Vec<&'static Card> {
    let mut cards: Vec<&'static Card> = config().cards.iter().collect();
    if env::var("ZE_ENABLE_PCI_ID_DEVICE_ORDER").as_deref() != Ok("1") {
        cards.sort_by_key(|card| card.integrated);
    }
    cards
}

/// The tiles of each card that the mask leaves. The grammar is written out here once more, as the driver has it, so that a
/// test can find the two to differ: a set of numbers, in any order and as often as one likes; numbers too large are ignored;
/// what is no number, where the driver looks at it, ends the driver, and so does a tile with more than one level below it.
fn masked(cards: &[&'static Card], hierarchy: Hierarchy, mask: &str) -> Option<Vec<Vec<u32>>> {
    let whole = |card: &&Card| (0..card.tiles).collect::<Vec<u32>>();
    if mask.is_empty() || mask == "default" {
        return Some(cards.iter().map(whole).collect());
    }
    let mut left: Vec<Vec<u32>> = cards.iter().map(|_| Vec::new()).collect();
    let flat: Vec<(usize, u32)> =
        cards.iter().enumerate().flat_map(|(at, card)| (0..card.tiles).map(move |tile| (at, tile))).collect();
    for entry in split(mask, ',') {
        let parts = split(entry, '.');
        let index = number(parts.first()?)? as usize;
        if hierarchy == Hierarchy::Composite {
            let Some(card) = cards.get(index) else { continue };
            let Some(tile) = parts.get(1) else {
                left[index].extend(whole(card));
                continue;
            };
            let tile = number(tile)?;
            match parts.len() {
                _ if tile >= card.tiles => {}
                2 => left[index].push(tile),
                3 => {}
                _ => return None,
            }
        } else if let ([_], Some(&(card, tile))) = (&parts[..], flat.get(index)) {
            left[card].push(tile);
        }
    }
    for tiles in &mut left {
        tiles.sort_unstable();
        tiles.dedup();
    }
    Some(left)
}

/// The parts of a text as the driver has them: nothing behind the last separator is no part.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut parts: Vec<&str> = text.split(separator).collect();
    if parts.last().is_some_and(|last| last.is_empty()) {
        parts.pop();
    }
    parts
}

/// A number as `stoul` reads it, in 32 of its bits: decimal, octal or hexadecimal, with whatever behind it.
fn number(text: &str) -> Option<u32> {
    let text = text.trim_start();
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if hex.starts_with(|c: char| c.is_ascii_hexdigit()) => (hex, 16),
        _ if text.starts_with('0') => (text, 8),
        _ => (text, 10),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let value = u64::from_str_radix(&digits[..end], radix).ok()?;
    Some(if negative { value.wrapping_neg() } else { value } as u32)
}

fn look() -> Option<View> {
    let (cards, hierarchy) = (ordered(), hierarchy());
    let left = masked(&cards, hierarchy, &env::var("ZE_AFFINITY_MASK").unwrap_or_default())?;
    let (mut devices, mut all) = (Vec::new(), Vec::new());
    for (card, tiles) in cards.into_iter().zip(left).filter(|(_, tiles)| !tiles.is_empty()) {
        let handle = FIRST + card.place as usize * 0x1000;
        let several = tiles.len() > 1;
        let parts: Vec<&'static Device> = tiles
            .iter()
            .filter(|_| several || (card.tiles > 1 && hierarchy != Hierarchy::Composite))
            .map(|&tile| {
                let root = (hierarchy != Hierarchy::Flat).then_some(handle);
                let handle = handle + 16 * (1 + tile as usize);
                let tiles = vec![tile];
                let part = Device { handle, card, tiles, is_part: root.is_some(), root, parts: Vec::new() };
                &*Box::leak(Box::new(part))
            })
            .collect();
        all.extend(&parts);
        let root = Device { handle, card, tiles, is_part: false, root: None, parts: parts.clone() };
        let root: &'static Device = Box::leak(Box::new(root));
        match (hierarchy, parts.is_empty()) {
            (Hierarchy::Composite, _) | (_, true) => devices.push(root),
            _ => devices.extend(parts),
        }
        if hierarchy != Hierarchy::Flat || root.parts.is_empty() {
            all.push(root);
        }
    }
    Some(View { devices, all })
}

#[cfg(test)]
mod tests {
    use super::{Hierarchy, masked};
    use crate::config::{Card, card};

    #[test]
    fn masks_are_sets() {
        let cards: Vec<&'static Card> =
            (0..2).map(|place| &*Box::leak(Box::new(card("a:tiles2", place, 1 << 20)))).collect();
        let left = |hierarchy, mask| masked(&cards, hierarchy, mask);
        let all = Some(vec![vec![0, 1], vec![0, 1]]);
        for hierarchy in [Hierarchy::Composite, Hierarchy::Flat, Hierarchy::Combined] {
            assert_eq!(left(hierarchy, ""), all);
            assert_eq!(left(hierarchy, "default"), all);
            for junk in ["x", "0,x", "-", ",", "0,,", ",0", "."] {
                assert_eq!(left(hierarchy, junk), None, "{junk}");
            }
            for nothing in ["9", "9,", "-1", "9.x", "0.7", "1.9,"] {
                assert_eq!(left(hierarchy, nothing), Some(vec![vec![], vec![]]), "{nothing}");
            }
            for (ended, whole) in [("0,", "0"), ("0,1,", "1,0"), ("0.", "0"), ("4294967297", "1")] {
                assert_eq!(left(hierarchy, ended), left(hierarchy, whole), "{ended}");
            }
        }
        assert_eq!(left(Hierarchy::Composite, "1,1"), Some(vec![vec![], vec![0, 1]]));
        assert_eq!(left(Hierarchy::Composite, "1.1,0.0,1.1,1.7"), Some(vec![vec![0], vec![1]]));
        assert_eq!(left(Hierarchy::Composite, "0x1"), Some(vec![vec![], vec![0, 1]]));
        assert_eq!(left(Hierarchy::Composite, " 1tail"), Some(vec![vec![], vec![0, 1]]));
        for junk in ["0.x", "0..1", "0.1.0.0"] {
            assert_eq!(left(Hierarchy::Composite, junk), None, "{junk}");
            assert_eq!(left(Hierarchy::Flat, junk), Some(vec![vec![], vec![]]), "{junk}");
        }
        assert_eq!(left(Hierarchy::Composite, "0.1.0"), Some(vec![vec![], vec![]]));
        assert_eq!(left(Hierarchy::Flat, "3,0,3"), Some(vec![vec![0], vec![1]]));
        assert_eq!(left(Hierarchy::Flat, "0.1"), Some(vec![vec![], vec![]]));
    }
}
