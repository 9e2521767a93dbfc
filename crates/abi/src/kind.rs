//! Kinds across the ABI: a number and a name that belong together.

use crate::loader::Refusal;
use crate::raw;
use crate::text::keep;
use anyaccel_hal::Kind;

/// The kinds that have a number of their own.
const NUMBERED: [(u32, Kind); 8] = [
    (raw::KIND_CUDA, Kind::CUDA),
    (raw::KIND_OPENCL, Kind::OPENCL),
    (raw::KIND_HIP, Kind::HIP),
    (raw::KIND_XPU, Kind::XPU),
    (raw::KIND_MPS, Kind::MPS),
    (raw::KIND_MTIA, Kind::MTIA),
    (raw::KIND_HOST, Kind::HOST),
    (raw::KIND_SIM, Kind::SIM),
];

/// The kind's number.
pub(crate) fn number(kind: Kind) -> u32 {
    NUMBERED.iter().find(|&&(_, numbered)| numbered == kind).map_or(raw::KIND_PRIVATE, |&(number, _)| number)
}

/// The kind of that number and name.
pub(crate) fn of(number: u32, name: &str) -> Result<Kind, Refusal> {
    if let Some(&(_, kind)) = NUMBERED.iter().find(|&&(known, _)| known == number) {
        let right = "that number has another name in plugin.h";
        return if kind.name() == name { Ok(kind) } else { Err(Refusal::BadKind { number, name: name.into(), right }) };
    }
    if number != raw::KIND_PRIVATE {
        let right = "a vendor's kind has the number ANYACCEL_KIND_PRIVATE";
        return Err(Refusal::BadKind { number, name: name.into(), right });
    }
    if Kind::KNOWN.iter().any(|known| known.name() == name) {
        let right = "that name is taken; choose one of your own";
        return Err(Refusal::BadKind { number, name: name.into(), right });
    }
    // Checked before it is kept: what is no name is not worth it.
    let kept = if Kind::is_name(name) { keep(name, "") } else { "" };
    Kind::private(kept).ok_or_else(|| Refusal::BadName { name: name.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_belong_together() {
        for (number_of, kind) in NUMBERED {
            assert_eq!(number(kind), number_of);
            assert_eq!(of(number_of, kind.name()), Ok(kind));
            assert!(of(raw::KIND_PRIVATE, kind.name()).is_err() && of(number_of, "npu").is_err());
        }
        let npu = of(raw::KIND_PRIVATE, "npu").expect("a private kind");
        assert_eq!((number(npu), npu.name()), (raw::KIND_PRIVATE, "npu"));
        for (number, name) in [(99, "npu"), (0, "cpu"), (raw::KIND_PRIVATE, "cpu"), (raw::KIND_PRIVATE, "meta")] {
            assert!(matches!(of(number, name), Err(Refusal::BadKind { .. })), "{number} {name}");
        }
        for name in ["", "NPU", "n pu", "a23456789012345678901234567890123"] {
            assert_eq!(of(raw::KIND_PRIVATE, name), Err(Refusal::BadName { name: name.into() }));
        }
    }
}
