//! The grammar of `CUDA_VISIBLE_DEVICES`, made total: any text gives a list of devices, and where the reading ended.
//!
//! As the vendor describes it and its driver behaves: items are parted by commas, and the first one that names no device
//! ends the list. Text that begins with `GPU-` or `MIG-` holds identities or prefixes of them, each of which has to fit
//! one device; any other text holds numbers, read like C's `strtol`: `1gpu2` is 1. A device named twice leaves none.
//!
//! A card that is cut into instances is used by one of them. A process sees one instance at most and beside it no card.

use std::fmt;

/// A card, as the mask can name it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Card {
    /// `GPU-` and its identity.
    pub uuid: String,
    /// Whether it is cut into instances, of which there may be none.
    pub cut: bool,
    /// `MIG-` and the identity of each instance.
    pub instances: Vec<String>,
}

/// A device that the mask leaves visible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pick {
    /// The card's place in the list.
    pub card: usize,
    /// The instance's place in the card.
    pub instance: Option<usize>,
}

/// Where the reading of a mask ended before its end, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// The item.
    pub item: String,
    /// What is wrong with it.
    pub why: Why,
}

/// What is wrong with an item of a mask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// It is not a number, in a list of numbers.
    NoNumber,
    /// The number is negative.
    Negative,
    /// There are not that many devices.
    OutOfRange,
    /// It has not the prefix of the first item.
    OtherForm,
    /// No device has that identity.
    Unknown,
    /// Several devices have identities that begin like this.
    Ambiguous,
    /// It names a device once more, which leaves none at all.
    Twice,
    /// It is a card that is cut into no instances yet.
    NoInstance,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.why {
            Why::NoNumber => "is no number",
            Why::Negative => "is negative",
            Why::OutOfRange => "is out of range",
            Why::OtherForm => "has another form than the first item",
            Why::Unknown => "names no device",
            Why::Ambiguous => "fits several devices",
            Why::Twice => "names a device twice, so none is visible",
            Why::NoInstance => "is a card in MIG mode without an instance",
        };
        write!(f, "{:?} {why}", self.item)
    }
}

/// What a mask leaves.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Visible {
    /// The devices in their order.
    pub picks: Vec<Pick>,
    /// Where the reading ended early.
    pub ended: Option<Ended>,
}

/// Applies a mask (`None`: the variable is not set) to the cards in the driver's order.
pub fn visible(mask: Option<&str>, cards: &[Card]) -> Visible {
    let Some(mask) = mask else {
        let every = cards.iter().enumerate();
        let picks = every.filter_map(|(at, card)| pick(at, card)).collect();
        return Visible { picks: one_instance(picks), ended: None };
    };
    let mut picks = Vec::new();
    let mut ended = None;
    let read = |item: &str| match mask.get(..4) {
        Some(prefix @ ("GPU-" | "MIG-")) => by_identity(item.trim(), prefix, cards),
        _ => by_number(item.trim(), cards),
    };
    for item in mask.split(',') {
        let stop = match read(item) {
            Ok(pick) if picks.contains(&pick) => Why::Twice,
            Ok(pick) => {
                picks.push(pick);
                continue;
            }
            Err(why) => why,
        };
        if stop == Why::Twice {
            picks.clear();
        }
        ended = Some(Ended { item: item.to_owned(), why: stop });
        break;
    }
    Visible { picks: one_instance(picks), ended }
}

/// A card itself, or the instance that it is used by.
fn pick(at: usize, card: &Card) -> Option<Pick> {
    match (card.cut, card.instances.is_empty()) {
        (false, _) => Some(Pick { card: at, instance: None }),
        (true, false) => Some(Pick { card: at, instance: Some(0) }),
        (true, true) => None,
    }
}

fn one_instance(picks: Vec<Pick>) -> Vec<Pick> {
    match picks.iter().find(|pick| pick.instance.is_some()) {
        Some(&instance) => vec![instance],
        None => picks,
    }
}

fn by_number(item: &str, cards: &[Card]) -> Result<Pick, Why> {
    let (negative, digits) = match item.as_bytes().first() {
        Some(b'-') => (true, &item[1..]),
        Some(b'+') => (false, &item[1..]),
        _ => (false, item),
    };
    let end = digits.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    if end == 0 {
        return Err(Why::NoNumber);
    }
    if negative {
        return Err(Why::Negative);
    }
    let number: usize = digits[..end].parse().map_err(|_| Why::OutOfRange)?;
    let card = cards.get(number).ok_or(Why::OutOfRange)?;
    pick(number, card).ok_or(Why::NoInstance)
}

fn by_identity(item: &str, prefix: &str, cards: &[Card]) -> Result<Pick, Why> {
    if !item.starts_with(prefix) {
        return Err(Why::OtherForm);
    }
    if item.len() == prefix.len() {
        return Err(Why::Unknown);
    }
    let mut fits = Vec::new();
    for (at, card) in cards.iter().enumerate() {
        if prefix == "GPU-" && card.uuid.starts_with(item) {
            fits.push(pick(at, card));
        }
        if prefix == "MIG-" {
            let named = card.instances.iter().enumerate().filter(|(_, uuid)| uuid.starts_with(item));
            fits.extend(named.map(|(instance, _)| Some(Pick { card: at, instance: Some(instance) })));
        }
    }
    match fits[..] {
        [] => Err(Why::Unknown),
        [one] => one.ok_or(Why::NoInstance),
        _ => Err(Why::Ambiguous),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(uuid: &str) -> Card {
        Card { uuid: format!("GPU-{uuid}"), cut: false, instances: Vec::new() }
    }

    fn cut(uuid: &str, instances: &[&str]) -> Card {
        let instances = instances.iter().map(|uuid| format!("MIG-{uuid}")).collect();
        Card { uuid: format!("GPU-{uuid}"), cut: true, instances }
    }

    fn numbers(mask: &str, cards: &[Card]) -> (Vec<usize>, Option<Why>) {
        let Visible { picks, ended } = visible(Some(mask), cards);
        (picks.iter().map(|pick| pick.card).collect(), ended.map(|ended| ended.why))
    }

    #[test]
    fn numbers_choose_and_order() {
        let cards = [whole("a1"), whole("a2"), whole("b1")];
        let table: [(&str, &[usize], Option<Why>); 16] = [
            ("0,1,2", &[0, 1, 2], None),
            ("2,0", &[2, 0], None),
            (" 1 , 2 ", &[1, 2], None),
            ("1gpu2,2ampere", &[1, 2], None),
            ("+1", &[1], None),
            ("007", &[], Some(Why::OutOfRange)),
            ("", &[], Some(Why::NoNumber)),
            ("-1", &[], Some(Why::Negative)),
            ("0,-1,2", &[0], Some(Why::Negative)),
            ("0,3,1", &[0], Some(Why::OutOfRange)),
            ("0,,1", &[0], Some(Why::NoNumber)),
            ("0,1,0", &[], Some(Why::Twice)),
            ("0,x,1", &[0], Some(Why::NoNumber)),
            ("99999999999999999999", &[], Some(Why::OutOfRange)),
            ("NoDevFiles", &[], Some(Why::NoNumber)),
            ("0,GPU-a2", &[0], Some(Why::NoNumber)),
        ];
        for (mask, picks, why) in table {
            assert_eq!(numbers(mask, &cards), (picks.to_vec(), why), "{mask:?}");
        }
    }

    #[test]
    fn identities_choose_by_their_beginning() {
        let cards = [whole("a1-x"), whole("a2-x"), whole("b1-x")];
        let table: [(&str, &[usize], Option<Why>); 9] = [
            ("GPU-b", &[2], None),
            ("GPU-b,GPU-a1", &[2, 0], None),
            ("GPU-a1-x", &[0], None),
            ("GPU-a", &[], Some(Why::Ambiguous)),
            ("GPU-", &[], Some(Why::Unknown)),
            ("GPU-c,GPU-b", &[], Some(Why::Unknown)),
            ("GPU-b,0", &[2], Some(Why::OtherForm)),
            ("GPU-b,GPU-b1", &[], Some(Why::Twice)),
            ("MIG-b", &[], Some(Why::Unknown)),
        ];
        for (mask, picks, why) in table {
            assert_eq!(numbers(mask, &cards), (picks.to_vec(), why), "{mask:?}");
        }
    }

    #[test]
    fn one_instance_and_no_card_beside_it() {
        let cards = [whole("a"), cut("b", &["m1", "m2"]), cut("c", &[])];
        let picked = |mask| visible(mask, &cards).picks;
        let instance = |instance| vec![Pick { card: 1, instance: Some(instance) }];
        assert_eq!(picked(None), instance(0));
        assert_eq!(picked(Some("0")), [Pick { card: 0, instance: None }]);
        assert_eq!(picked(Some("0,1")), instance(0));
        assert_eq!(picked(Some("GPU-b")), instance(0));
        assert_eq!(picked(Some("MIG-m2")), instance(1));
        assert_eq!(picked(Some("MIG-m2,MIG-m1")), instance(1));
        assert_eq!(numbers("2", &cards).1, Some(Why::NoInstance));
        assert_eq!(numbers("MIG-m", &cards).1, Some(Why::Ambiguous));
        assert_eq!(visible(None, &[cut("c", &[])]).picks, []);
    }

    fn any_card() -> impl Strategy<Value = Card> {
        let uuid = "[ab12]{1,4}";
        (uuid, any::<bool>(), proptest::collection::vec(uuid, 0..3)).prop_map(|(uuid, is_cut, instances)| {
            let names: Vec<&str> = if is_cut { instances.iter().map(String::as_str).collect() } else { Vec::new() };
            if is_cut { cut(&uuid, &names) } else { whole(&uuid) }
        })
    }

    fn any_mask() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<String>(),
            "[-+0-9 ,a-z]{0,12}",
            "(GPU|MIG)-[ab12]{0,4}(,(GPU|MIG)-[ab12]{0,4}){0,3}",
            "[0-5](,[0-5]){0,5}",
        ]
    }

    proptest! {
        #[test]
        fn any_text_has_an_answer(mask in any_mask(), cards in proptest::collection::vec(any_card(), 0..6)) {
            let Visible { picks, ended } = visible(Some(&mask), &cards);
            for (at, pick) in picks.iter().enumerate() {
                prop_assert!(pick.card < cards.len());
                prop_assert!(!picks[..at].contains(pick), "a device twice");
                prop_assert_eq!(cards[pick.card].cut, pick.instance.is_some());
                if let Some(instance) = pick.instance {
                    prop_assert!(instance < cards[pick.card].instances.len());
                    prop_assert_eq!(picks.len(), 1);
                }
            }
            if ended.as_ref().is_some_and(|ended| ended.why == Why::Twice) {
                prop_assert!(picks.is_empty());
            }
            if ended.is_none() && picks.len() != 1 {
                prop_assert_eq!(picks.len(), mask.split(',').count());
            }
        }

        #[test]
        fn what_comes_after_a_bad_item_does_not_count(
            mask in "[0-3](,[0-3]){0,3}",
            tail in any_mask(),
            cards in proptest::collection::vec(any_card(), 0..6),
        ) {
            let short = visible(Some(&format!("{mask},x")), &cards);
            let long = visible(Some(&format!("{mask},x,{tail}")), &cards);
            prop_assert_eq!(short, long);
        }

        #[test]
        fn whole_identities_choose_that_card(cards in proptest::collection::vec(any_card(), 1..6), at in any::<prop::sample::Index>()) {
            let at = at.index(cards.len());
            let unique = cards.iter().filter(|card| card.uuid.starts_with(&cards[at].uuid)).count() == 1;
            prop_assume!(unique && !cards[at].cut);
            let picked = visible(Some(&cards[at].uuid), &cards).picks;
            prop_assert_eq!(picked, [Pick { card: at, instance: None }]);
        }
    }
}
