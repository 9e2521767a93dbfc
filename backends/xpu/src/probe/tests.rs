use super::inventory::Card;
use super::*;
use crate::probe::inventory::blank;
use crate::sys::ZesDevice;
use anyaccel_hal::{PciAddress, Uuid};

fn card(driver: usize, number: u8, name: &str, tiles: u32, integrated: bool) -> Card {
    let info = DeviceInfo {
        name: name.to_owned(),
        uuid: Some(Uuid([number; 16])),
        pci: Some(PciAddress { domain: 0, bus: number, device: 0, function: 0 }),
        integrated: Some(integrated),
        ..blank()
    };
    Card::new(driver, ZesDevice(number.into()), tiles, info)
}

fn settings(mask: Option<&str>, hierarchy: Hierarchy, by_bus: bool) -> Settings {
    Settings { mask: mask.map(str::to_owned), hierarchy, by_bus }
}

/// Names of the devices by ordinal, before a start.
fn names(inventory: &Inventory, settings: Settings) -> Vec<Option<(String, usize, Option<u32>)>> {
    let look = Look::of(inventory, settings).expect("cards");
    (0..look.count()).map(|ordinal| look.unit(ordinal).map(|unit| (unit.info.name, unit.handle.0, unit.tile))).collect()
}

fn of(name: &str, handle: usize, tile: Option<u32>) -> Option<(String, usize, Option<u32>)> {
    Some((name.to_owned(), handle, tile))
}

#[test]
fn tiles_are_devices_unless_cards_are() {
    let inventory = Inventory { drivers: 1, cards: vec![card(0, 1, "Max", 2, false), card(0, 2, "Max", 2, false)] };
    let flat = names(&inventory, settings(None, Hierarchy::Flat, false));
    assert_eq!(flat, [of("Max", 1, Some(0)), of("Max", 1, Some(1)), of("Max", 2, Some(0)), of("Max", 2, Some(1))]);
    let cards = names(&inventory, settings(None, Hierarchy::Composite, false));
    assert_eq!(cards, [of("Max", 1, None), of("Max", 2, None)]);
    let tile = names(&inventory, settings(Some("1.0"), Hierarchy::Composite, false));
    assert_eq!(tile, [of("Max", 2, Some(0))]);
    assert_eq!(names(&inventory, settings(Some("3"), Hierarchy::Combined, false)), [of("Max", 2, Some(1))]);
}

#[test]
fn integrated_cards_are_seen_where_nothing_else_is() {
    let inventory = Inventory { drivers: 1, cards: vec![card(0, 1, "Iris", 0, true), card(0, 2, "Arc", 0, false)] };
    let flat = |mask| settings(mask, Hierarchy::Flat, true);
    assert_eq!(names(&inventory, flat(None)), [of("Arc", 2, None)]);
    assert_eq!(names(&inventory, flat(Some("0"))), [of("Iris", 1, None)]);
    assert_eq!(names(&inventory, flat(Some("0,1"))), [of("Arc", 2, None)]);
    let probe = |mask| Look::of(&inventory, flat(mask)).expect("cards").probe();
    assert_eq!(probe(None), Probe::found(1));
    assert_eq!((probe(Some("0")).visible, probe(Some("0")).present), (1, Some(1)));
}

#[test]
fn of_cards_that_differ_only_the_runtime_knows_the_order() {
    let inventory = Inventory { drivers: 1, cards: vec![card(0, 9, "Old", 0, false), card(0, 2, "New", 0, false)] };
    assert_eq!(names(&inventory, settings(None, Hierarchy::Flat, false)), [None, None]);
    assert_eq!(names(&inventory, settings(Some("1"), Hierarchy::Flat, false)), [None]);
    let by_bus = names(&inventory, settings(None, Hierarchy::Flat, true));
    assert_eq!(by_bus, [of("New", 2, None), of("Old", 9, None)]);
    assert_eq!(names(&inventory, settings(Some("1"), Hierarchy::Flat, true)), [of("Old", 9, None)]);
    // One that is left over by itself, whatever comes first.
    let with_integrated =
        Inventory { drivers: 1, cards: vec![card(0, 1, "Iris", 0, true), card(0, 2, "Arc", 0, false)] };
    assert_eq!(names(&with_integrated, settings(None, Hierarchy::Flat, false)), [of("Arc", 2, None)]);
    assert_eq!(names(&with_integrated, settings(Some("0"), Hierarchy::Flat, false)), [None]);
}

#[test]
fn a_mask_counts_within_each_driver() {
    let inventory = Inventory { drivers: 2, cards: vec![card(0, 1, "A", 0, false), card(1, 2, "B", 0, false)] };
    let look = Look::of(&inventory, settings(Some("0,1,7"), Hierarchy::Flat, true)).expect("cards");
    assert_eq!(look.names(), ["A", "B"]);
    assert_eq!(look.idle(), ["1", "7"]);
}

#[test]
fn what_hides_all_or_can_not_be_read_is_told_apart() {
    let inventory = Inventory { drivers: 1, cards: vec![card(0, 1, "Arc", 0, false)] };
    let hidden = Look::of(&inventory, settings(Some("5"), Hierarchy::Flat, false)).expect("cards").probe();
    let masked = Absence::Masked { name: MASK, value: "5".into() };
    assert_eq!(hidden, Probe { visible: 0, present: Some(1), absence: Some(masked), started: false });
    let bad = Look::of(&inventory, settings(Some("0,x"), Hierarchy::Flat, false)).expect_err("junk");
    assert!(matches!(&bad, Absence::BadVariable { name: MASK, value, .. } if value == "0,x"));
    let empty = Inventory { drivers: 1, cards: vec![] };
    let none = Look::of(&empty, settings(None, Hierarchy::Flat, false));
    assert!(matches!(none, Err(Absence::Missing { layer: Layer::Probe, .. })));
}
