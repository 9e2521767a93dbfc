//! What a launch gives a built-in, taken apart.

use crate::{Builtin, KernelError};
use anyaccel_hal::{Arg, Mem, Place};

/// The arguments of a built-in, as many as it takes.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    /// The places, each with the bytes from there on that may be touched. [`Builtin::places`] says how many they are; what is left
    /// names nothing.
    pub places: [(Place, u64); 2],
    /// The parameters.
    pub params: &'a [u8],
}

impl Builtin {
    /// Takes the arguments of a launch apart: its places, then its parameters in bytes if it has any.
    ///
    /// # Errors
    /// [`KernelError::Arguments`].
    pub fn arguments<'a>(self, args: &[Arg<'a>]) -> Result<Arguments<'a>, KernelError> {
        let (given, params) = match args.split_last() {
            Some((&Arg::Bytes(params), places)) => (places, params),
            _ => (args, &[][..]),
        };
        let mut places = [(Place { mem: Mem(0), offset: 0 }, 0); 2];
        let mut fits = given.len() == self.places() && params.len() == self.params_size();
        for (place, arg) in places.iter_mut().zip(given) {
            match *arg {
                Arg::Place { place: given, len } => *place = (given, len),
                Arg::Bytes(_) | Arg::Local(_) => fits = false,
            }
        }
        if fits {
            Ok(Arguments { places, params })
        } else {
            Err(KernelError::Arguments { kernel: self, given: format!("{args:?}") })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn place(mem: u64, len: u64) -> Arg<'static> {
        Arg::Place { place: Place { mem: Mem(mem), offset: 8 }, len }
    }

    #[test]
    fn places_and_parameters_are_taken_apart() {
        let params = [0; 64];
        let params = &params[..Builtin::Histogram.params_size()];
        let found =
            Builtin::Histogram.arguments(&[place(1, 2048), place(2, 10), Arg::Bytes(params)]).expect("arguments");
        assert_eq!(found.places.map(|(place, len)| (place.mem, len)), [(Mem(1), 2048), (Mem(2), 10)]);
        assert_eq!(found.params, params);
        assert!(Builtin::Noop.arguments(&[]).expect("it takes none").params.is_empty());
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let params = &[0; 64][..Builtin::Histogram.params_size()];
        let wrong: [&[Arg<'_>]; 5] = [
            &[],
            &[place(1, 1), Arg::Bytes(params)],
            &[place(1, 1), place(2, 1)],
            &[place(1, 1), place(2, 1), Arg::Bytes(&params[1..])],
            &[place(1, 1), Arg::Local(4), Arg::Bytes(params)],
        ];
        for args in wrong {
            let error = Builtin::Histogram.arguments(args).expect_err("they do not fit");
            assert_eq!(error.to_string(), format!("histogram takes 2 places and {} bytes, not {args:?}", params.len()));
        }
        let error = Builtin::Noop.arguments(&[place(1, 1)]).expect_err("it takes none");
        assert_eq!(error.fault("launch").kind, anyaccel_hal::FaultKind::Invalid);
    }
}
