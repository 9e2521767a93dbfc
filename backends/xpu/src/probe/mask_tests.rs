use super::*;
use proptest::prelude::*;

const ALL: [Hierarchy; 3] = [Hierarchy::Flat, Hierarchy::Composite, Hierarchy::Combined];

/// The devices as `card` or `card.tile`, or the item that can't be read.
fn picked(mask: &str, hierarchy: Hierarchy, cards: &[u32]) -> Result<Vec<String>, String> {
    let visible = visible(Some(mask), hierarchy, cards).map_err(|junk| junk.to_string())?;
    let text = |pick: &Pick| match pick.tile {
        Some(tile) => format!("{}.{tile}", pick.card),
        None => pick.card.to_string(),
    };
    Ok(visible.picks.iter().map(text).collect())
}

#[test]
fn the_hierarchy_is_one_of_three_words() {
    for (text, want) in [
        (None, Hierarchy::Flat),
        (Some(""), Hierarchy::Flat),
        (Some("FLAT"), Hierarchy::Flat),
        (Some("COMPOSITE"), Hierarchy::Composite),
        (Some("COMBINED"), Hierarchy::Combined),
        (Some("composite"), Hierarchy::Flat),
        (Some("COMPOSITE "), Hierarchy::Flat),
    ] {
        assert_eq!(Hierarchy::of(text), want, "{text:?}");
    }
}

#[test]
fn no_mask_hides_nothing() {
    let cards = [2, 0, 1, 4];
    for mask in [None, Some(""), Some("default")] {
        let count = |hierarchy| visible(mask, hierarchy, &cards).map(|visible| visible.picks.len());
        assert_eq!(ALL.map(count), [Ok(8), Ok(4), Ok(8)]);
    }
    assert_eq!(visible(None, Hierarchy::Flat, &[]), Ok(Visible::default()));
}

#[test]
fn cards_and_tiles_where_cards_are_devices() {
    let table: [(&str, &[&str]); 17] = [
        ("0,1", &["0", "1"]),
        ("1,0", &["0", "1"]),
        ("1", &["1"]),
        ("0.1", &["0.1"]),
        ("0.0,0.1", &["0"]),
        ("0.1,1", &["0.1", "1"]),
        ("1.3,0.1,1.0,0.0", &["0", "1"]),
        ("0.1,0.1", &["0.1"]),
        ("0,0.1", &["0"]),
        ("2", &[]),
        ("0.2", &[]),
        ("0.1.0", &[]),
        ("-1", &[]),
        ("0.-1", &[]),
        ("1,", &["1"]),
        ("0x1", &["1"]),
        (" 1gpu", &["1"]),
    ];
    for (mask, want) in table {
        assert_eq!(picked(mask, Hierarchy::Composite, &[2, 4]).as_deref(), Ok(&want.map_str()[..]), "{mask:?}");
    }
    let kept = visible(Some("1.3,1.0"), Hierarchy::Composite, &[2, 4]).map(|visible| visible.picks);
    assert_eq!(kept, Ok(vec![Pick { card: 1, tiles: 0b1001, tile: None }]));
}

#[test]
fn numbers_count_tiles_where_tiles_are_devices() {
    let table: [(&str, &[&str]); 9] = [
        ("0", &["0.0"]),
        ("1", &["0.1"]),
        ("2", &["1"]),
        ("3,0", &["0.0", "2.0"]),
        ("4,4,4", &["2.1"]),
        ("5", &[]),
        ("0.1", &[]),
        ("0.1,2", &["1"]),
        ("01,0x4", &["0.1", "2.1"]),
    ];
    for hierarchy in [Hierarchy::Flat, Hierarchy::Combined] {
        for (mask, want) in table {
            assert_eq!(picked(mask, hierarchy, &[2, 1, 2]).as_deref(), Ok(&want.map_str()[..]), "{mask:?}");
        }
    }
}

#[test]
fn what_names_nothing_is_told() {
    let idle = |mask, hierarchy| visible(Some(mask), hierarchy, &[2]).map(|visible| visible.idle);
    assert_eq!(idle("0,7,0.5", Hierarchy::Composite), Ok(vec!["7".to_owned(), "0.5".to_owned()]));
    assert_eq!(idle("0,0.1", Hierarchy::Flat), Ok(vec!["0.1".to_owned()]));
}

#[test]
fn junk_is_an_error_that_names_it() {
    for (mask, item, why) in [
        ("gpu", "gpu", Why::NoNumber),
        ("0,x,1", "x", Why::NoNumber),
        (",0", "", Why::NoNumber),
        ("0,,1", "", Why::NoNumber),
        ("0,,", "", Why::NoNumber),
        (",", "", Why::NoNumber),
        (" ", " ", Why::NoNumber),
        (".0", ".0", Why::NoNumber),
        ("0.x", "0.x", Why::NoNumber),
        ("0..1", "0..1", Why::NoNumber),
        ("-", "-", Why::NoNumber),
        ("0,18446744073709551616", "18446744073709551616", Why::TooLarge),
        ("1,0.1.0.0", "0.1.0.0", Why::TooDeep),
    ] {
        for hierarchy in ALL {
            let junk = Junk { item: item.to_owned(), why };
            assert_eq!(visible(Some(mask), hierarchy, &[2, 1]), Err(junk), "{mask:?}");
        }
    }
}

#[test]
fn numbers_are_read_as_c_reads_them() {
    for (text, want) in [
        ("0", Ok(0)),
        ("017", Ok(15)),
        ("08", Ok(0)),
        ("0x1F", Ok(31)),
        ("0Xg", Ok(0)),
        ("0x", Ok(0)),
        ("\t +12 ", Ok(12)),
        ("-1", Ok(u32::MAX)),
        ("-18446744073709551615", Ok(1)),
        ("4294967296", Ok(0)),
        ("ä", Err(Why::NoNumber)),
        ("", Err(Why::NoNumber)),
    ] {
        assert_eq!(number(text), want, "{text:?}");
    }
}

#[test]
fn discrete_cards_hide_the_others() {
    let left = |devices: &[(u32, bool)]| {
        let devices = discrete_first(devices.to_vec(), |&(_, integrated)| integrated);
        devices.into_iter().map(|(number, _)| number).collect::<Vec<_>>()
    };
    assert_eq!(left(&[(0, true), (1, false), (2, true), (3, false)]), [1, 3]);
    assert_eq!(left(&[(0, true), (1, true)]), [0, 1]);
    assert_eq!(left(&[]), [0; 0]);
}

trait MapStr {
    fn map_str(&self) -> Vec<String>;
}

impl MapStr for &[&str] {
    fn map_str(&self) -> Vec<String> {
        self.iter().map(|&text| text.to_owned()).collect()
    }
}

fn any_mask() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[-+0-9 ,.xa-f]{0,12}", "[0-9](\\.[0-4])?(,[0-9](\\.[0-4])?){0,5},?"]
}

fn any_hierarchy() -> impl Strategy<Value = Hierarchy> {
    prop::sample::select(ALL.to_vec())
}

fn any_cards() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(prop_oneof![0..5_u32, any::<u32>()], 0..6)
}

/// The devices that are seen without a mask.
fn everything(hierarchy: Hierarchy, cards: &[u32]) -> Vec<Pick> {
    visible(None, hierarchy, cards).map(|visible| visible.picks).unwrap_or_default()
}

proptest! {
    #[test]
    fn any_text_has_an_answer(mask in any_mask(), hierarchy in any_hierarchy(), cards in any_cards()) {
        match visible(Some(&mask), hierarchy, &cards) {
            Err(junk) => prop_assert!(mask.contains(&junk.item)),
            Ok(Visible { picks, idle }) => {
                let all = everything(hierarchy, &cards);
                prop_assert!(picks.is_sorted_by_key(|pick| (pick.card, pick.tile)));
                for (at, pick) in picks.iter().enumerate() {
                    let count = cards[pick.card].clamp(1, MOST_TILES);
                    prop_assert!(!picks[..at].contains(pick), "a device twice");
                    prop_assert!(pick.tiles != 0 && pick.tiles & !super::all(count) == 0);
                    prop_assert_eq!(pick.tile.is_some(), count > 1 && pick.tiles.count_ones() == 1);
                    if hierarchy.flat() {
                        prop_assert!(all.contains(pick), "a device that is not there");
                    }
                }
                prop_assert!(idle.iter().all(|item| mask.contains(item.as_str())));
            }
        }
    }

    #[test]
    fn order_and_repetition_mean_nothing(
        items in proptest::collection::vec("[0-6](\\.[0-3])?", 1..6),
        hierarchy in any_hierarchy(),
        cards in any_cards(),
    ) {
        let picks = |items: &[String]| visible(Some(&items.join(",")), hierarchy, &cards).map(|visible| visible.picks);
        let (mut turned, mut twice) = (items.clone(), items.clone());
        turned.reverse();
        twice.extend(items.iter().cloned());
        prop_assert_eq!(picks(&items), picks(&turned));
        prop_assert_eq!(picks(&items), picks(&twice));
    }

    #[test]
    fn a_number_alone_is_the_device_of_that_place(number in 0..8_usize, hierarchy in any_hierarchy(), cards in any_cards()) {
        let want: Vec<Pick> = everything(hierarchy, &cards).get(number).copied().into_iter().collect();
        let got = visible(Some(&number.to_string()), hierarchy, &cards).map(|visible| visible.picks);
        prop_assert_eq!(got, Ok(want));
    }

    #[test]
    fn junk_anywhere_is_refused(
        items in proptest::collection::vec("[0-6](\\.[0-3])?", 0..4),
        at in any::<prop::sample::Index>(),
        junk in "[a-z.]{1,4}",
        hierarchy in any_hierarchy(),
    ) {
        let mut items = items;
        items.insert(at.index(items.len() + 1), junk.clone());
        let refused = visible(Some(&items.join(",")), hierarchy, &[1, 2]);
        // A point at the end counts for nothing.
        prop_assert!(matches!(refused, Err(Junk { item, why: Why::NoNumber }) if item == junk), "{:?}", items);
    }
}
