//! Pickles written by hand, in the text protocol: what no writer of ours would write.
#![allow(dead_code)]

/// An object of Python.
#[derive(Clone, Debug)]
pub(crate) enum Py {
    D(Vec<(&'static str, Py)>),
    L(Vec<Py>),
    T(Vec<Py>),
    I(i128),
    S(String),
    B(bool),
    F(f64),
    None,
}

pub(crate) fn s(text: &str) -> Py {
    Py::S(text.into())
}

impl Py {
    fn put(&self, out: &mut String) {
        match self {
            Py::D(pairs) => {
                out.push_str("(d");
                for (key, value) in pairs {
                    out.push_str(&format!("V{key}\n"));
                    value.put(out);
                    out.push('s');
                }
            }
            Py::L(items) => {
                out.push_str("(l");
                for item in items {
                    item.put(out);
                    out.push('a');
                }
            }
            Py::T(items) => {
                out.push('(');
                items.iter().for_each(|item| item.put(out));
                out.push('t');
            }
            Py::I(n) => out.push_str(&format!("L{n}L\n")),
            Py::S(text) => out.push_str(&format!("V{text}\n")),
            Py::B(on) => out.push_str(if *on { "I01\n" } else { "I00\n" }),
            Py::F(x) => out.push_str(&format!("F{x}\n")),
            Py::None => out.push('N'),
        }
    }

    /// The pickle.
    pub(crate) fn pickle(&self) -> Vec<u8> {
        let mut out = String::new();
        self.put(&mut out);
        out.push('.');
        out.into_bytes()
    }
}

/// A snapshot of one device.
pub(crate) fn snapshot(segments: Vec<Py>, events: Vec<Py>) -> Py {
    Py::D(vec![("segments", Py::L(segments)), ("device_traces", Py::L(vec![Py::L(events)]))])
}

pub(crate) fn event(action: &str, addr: i128, size: i128) -> Py {
    Py::D(vec![("action", s(action)), ("addr", Py::I(addr)), ("size", Py::I(size)), ("stream", Py::I(0))])
}

pub(crate) fn block(addr: i128, size: i128, state: &str) -> Py {
    Py::D(vec![("address", Py::I(addr)), ("size", Py::I(size)), ("requested_size", Py::I(size)), ("state", s(state))])
}

pub(crate) fn segment(addr: i128, size: i128, blocks: Vec<Py>) -> Py {
    Py::D(vec![
        ("device", Py::I(0)),
        ("address", Py::I(addr)),
        ("total_size", Py::I(size)),
        ("stream", Py::I(0)),
        ("segment_type", s("large")),
        ("blocks", Py::L(blocks)),
    ])
}
