//! The stack machine: the opcodes that make plain data.

use std::io::Read;

use super::decode::pair_of;
use super::error::shown;
use super::objects::{Objects, Value};
use super::source::Source;
use super::{Limits, ReadError, assemble, protocol0};
use crate::Snapshot;

/// Values on the stack at most. Writers put lists and dictionaries together in portions of 1000.
const DEEPEST: usize = 1 << 20;

/// The highest protocol there is.
const PROTOCOL: u8 = 5;

/// Adds items to the object below them.
type Add = fn(&mut Objects, u64, Value, &[Value], bool) -> Result<(), ReadError>;

struct Machine<R> {
    source: Source<R>,
    objects: Objects,
    stack: Vec<Value>,
    marks: Vec<usize>,
    limits: Limits,
    /// Where the opcode at hand lies.
    offset: u64,
    /// The empty string, which every event has as a new object.
    empty: u32,
}

/// Opcodes that are refused, by name.
fn refused(op: u8) -> Option<&'static str> {
    Some(match op {
        b'c' => "GLOBAL",
        0x93 => "STACK_GLOBAL",
        b'R' => "REDUCE",
        b'b' => "BUILD",
        b'i' => "INST",
        b'o' => "OBJ",
        0x81 => "NEWOBJ",
        0x92 => "NEWOBJ_EX",
        b'P' => "PERSID",
        b'Q' => "BINPERSID",
        0x82 => "EXT1",
        0x83 => "EXT2",
        0x84 => "EXT4",
        0x97 => "NEXT_BUFFER",
        0x98 => "READONLY_BUFFER",
        _ => return None,
    })
}

/// Reads a pickle to its end and makes a snapshot of it.
pub(super) fn run<R: Read>(source: Source<R>, limits: Limits) -> Result<Snapshot, ReadError> {
    let mut objects = Objects::new();
    let empty = objects.texts.intern("").0;
    let mut machine = Machine { source, objects, stack: Vec::new(), marks: Vec::new(), limits, offset: 0, empty };
    let top = machine.run()?;
    machine.source.finish()?;
    let offset = machine.offset;
    machine.objects.seal(offset, top);
    assemble::snapshot(machine.objects, top, offset)
}

impl<R: Read> Machine<R> {
    fn corrupt<T>(&self, reason: impl Into<String>) -> Result<T, ReadError> {
        Err(ReadError::Corrupt { offset: self.offset, reason: reason.into() })
    }

    #[inline]
    fn push(&mut self, value: Value) -> Result<(), ReadError> {
        if self.stack.len() >= DEEPEST {
            return self.corrupt(format!("more than {DEEPEST} values are put on the stack; no writer does that"));
        }
        self.stack.push(value);
        Ok(())
    }

    #[inline]
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    #[inline]
    fn pop(&mut self) -> Result<Value, ReadError> {
        match self.stack.pop() {
            Some(value) if self.stack.len() >= self.floor() => Ok(value),
            _ => self.corrupt("the pickle takes a value that it did not put there"),
        }
    }

    #[inline]
    fn top(&self) -> Result<Value, ReadError> {
        match self.stack.last() {
            Some(&value) if self.stack.len() > self.floor() => Ok(value),
            _ => self.corrupt("the pickle takes a value that it did not put there"),
        }
    }

    /// The place of the last mark, which is taken off.
    #[inline]
    fn mark(&mut self) -> Result<usize, ReadError> {
        match self.marks.pop() {
            Some(at) => Ok(at),
            None => self.corrupt("the pickle takes a mark that it did not put there"),
        }
    }

    fn text(&mut self, len: u64) -> Result<(), ReadError> {
        if len == 0 {
            return self.push(Value::Text(self.empty));
        }
        let offset = self.offset;
        let bytes = self.source.bytes(len)?;
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Err(ReadError::Corrupt { offset, reason: "a string is not UTF-8".into() });
        };
        let id = self.objects.texts.intern(text).0;
        self.push(Value::Text(id))
    }

    /// A string of an old protocol, of which nobody knows the encoding.
    fn latin(&mut self, bytes: Vec<u8>) -> Result<(), ReadError> {
        let text = String::from_utf8(bytes).unwrap_or_else(|e| e.into_bytes().iter().map(|&b| char::from(b)).collect());
        let id = self.objects.texts.intern(&text).0;
        self.push(Value::Text(id))
    }

    fn long(&mut self, len: u64) -> Result<(), ReadError> {
        if len > 8 {
            self.source.skip(len)?;
            return self.push(Value::Opaque);
        }
        let bytes = self.source.bytes(len)?;
        let mut value = 0i64;
        for (at, &byte) in bytes.iter().enumerate() {
            value |= i64::from(byte) << (8 * at);
        }
        if let Some(&last) = bytes.last()
            && last >= 0x80
            && len < 8
        {
            value -= 1 << (8 * len);
        }
        self.push(Value::Int(value))
    }

    /// Adds what lies above the last mark to the object below it, with `add`.
    #[inline]
    fn gather(&mut self, add: Add) -> Result<(), ReadError> {
        let from = self.mark()?;
        if from == 0 || from <= self.floor() {
            return self.corrupt("the pickle adds to an object that is not there");
        }
        add(&mut self.objects, self.offset, self.stack[from - 1], &self.stack[from..], true)?;
        self.stack.truncate(from);
        Ok(())
    }

    fn tuple(&mut self, from: usize) -> Result<(), ReadError> {
        let items = &self.stack[from..];
        for &item in items {
            self.objects.seal(self.offset, item);
        }
        let value = match pair_of(items) {
            Some(pair) => match self.objects.records.pool(pair) {
                Some(at) => Value::Pair(at),
                None => return self.corrupt("more than 65536 different pairs of numbers"),
            },
            None => Value::Opaque,
        };
        self.stack.truncate(from);
        self.push(value)
    }

    fn top_tuple(&mut self, len: usize) -> Result<(), ReadError> {
        match self.stack.len().checked_sub(len) {
            Some(from) if from >= self.floor() => self.tuple(from),
            _ => self.corrupt("the pickle takes a value that it did not put there"),
        }
    }

    fn recall(&mut self, at: u32) -> Result<(), ReadError> {
        match self.objects.recall(at) {
            Some(value) => self.push(value),
            None => self.corrupt(format!("the pickle names object {at}, which it did not write before")),
        }
    }

    fn memoize(&mut self, at: u32) -> Result<(), ReadError> {
        let value = self.top()?;
        self.objects.memoize(at, value);
        Ok(())
    }

    fn check_memory(&self) -> Result<(), ReadError> {
        let held = self.objects.footprint() + self.stack.capacity() * 16 + self.marks.capacity() * 8;
        if held as u64 > self.limits.memory {
            return Err(ReadError::TooLarge { offset: self.offset, limit: self.limits.memory });
        }
        Ok(())
    }

    fn run(&mut self) -> Result<Value, ReadError> {
        let mut until_check = 0u32;
        loop {
            if until_check == 0 {
                // An opcode takes at most some hundred bytes, or what its string is long.
                self.check_memory()?;
                until_check = 1 << 16;
            }
            until_check -= 1;
            self.offset = self.source.offset();
            let op = self.source.byte()?;
            match op {
                b'h' => {
                    let at = u32::from(self.source.byte()?);
                    self.recall(at)?;
                }
                b'j' => {
                    let at = u32::from_le_bytes(self.source.array()?);
                    self.recall(at)?;
                }
                0x94 => {
                    let next = self.objects.memo_len();
                    self.memoize(next)?;
                }
                b'q' => {
                    let at = u32::from(self.source.byte()?);
                    self.memoize(at)?;
                }
                b'r' => {
                    let at = u32::from_le_bytes(self.source.array()?);
                    self.memoize(at)?;
                }
                b'K' => {
                    let value = i64::from(self.source.byte()?);
                    self.push(Value::Int(value))?;
                }
                b'M' => {
                    let value = i64::from(u16::from_le_bytes(self.source.array()?));
                    self.push(Value::Int(value))?;
                }
                b'J' => {
                    let value = i64::from(i32::from_le_bytes(self.source.array()?));
                    self.push(Value::Int(value))?;
                }
                0x8a => {
                    let len = u64::from(self.source.byte()?);
                    self.long(len)?;
                }
                0x8b => {
                    let len = i32::from_le_bytes(self.source.array()?);
                    let Ok(len) = u64::try_from(len) else {
                        return self.corrupt("a number of a negative length");
                    };
                    self.long(len)?;
                }
                b'G' => {
                    let value = f64::from_be_bytes(self.source.array()?);
                    self.push(Value::Float(value))?;
                }
                0x8c => {
                    let len = u64::from(self.source.byte()?);
                    self.text(len)?;
                }
                b'X' => {
                    let len = u64::from(u32::from_le_bytes(self.source.array()?));
                    self.text(len)?;
                    until_check = until_check.saturating_sub(len as u32 >> 6);
                }
                0x8d => {
                    let len = u64::from_le_bytes(self.source.array()?);
                    self.text(len)?;
                    until_check = 0;
                }
                b'}' => {
                    let dict = self.objects.new_dict();
                    self.push(dict)?;
                }
                b']' => {
                    let list = self.objects.new_list();
                    self.push(list)?;
                }
                b'(' => {
                    if self.marks.len() >= DEEPEST {
                        return self.corrupt(format!("more than {DEEPEST} marks; no writer nests so deep"));
                    }
                    self.marks.push(self.stack.len());
                }
                b'u' => self.gather(Objects::update)?,
                b'e' => self.gather(Objects::extend)?,
                b'a' => {
                    let item = self.pop()?;
                    let list = self.top()?;
                    self.objects.extend(self.offset, list, &[item], false)?;
                }
                b's' => {
                    let value = self.pop()?;
                    let key = self.pop()?;
                    let dict = self.top()?;
                    self.objects.update(self.offset, dict, &[key, value], false)?;
                }
                0x88 => self.push(Value::Bool(true))?,
                0x89 => self.push(Value::Bool(false))?,
                0x85 => self.top_tuple(1)?,
                0x86 => self.top_tuple(2)?,
                0x87 => self.top_tuple(3)?,
                b't' => {
                    let from = self.mark()?;
                    self.tuple(from)?;
                }
                b')' | b'N' => self.push(Value::Opaque)?,
                0x95 => {
                    // A frame is only a hint of how much to read at once.
                    self.source.array::<8>()?;
                }
                0x80 => {
                    let protocol = self.source.byte()?;
                    if protocol > PROTOCOL {
                        return self.corrupt(format!("pickle protocol {protocol}; known are 0 to {PROTOCOL}"));
                    }
                }
                b'.' => return self.pop(),
                _ => {
                    self.rare(op)?;
                    // Their strings may be long.
                    until_check = until_check.min(64);
                }
            }
        }
    }

    /// Opcodes of the old protocols, and those that no snapshot has.
    #[cold]
    fn rare(&mut self, op: u8) -> Result<(), ReadError> {
        match op {
            b'l' | b'd' => {
                let from = self.mark()?;
                let items: Vec<Value> = self.stack.drain(from..).collect();
                let object = if op == b'l' { self.objects.new_list() } else { self.objects.new_dict() };
                if op == b'l' {
                    self.objects.extend(self.offset, object, &items, true)?;
                } else {
                    self.objects.update(self.offset, object, &items, true)?;
                }
                self.push(object)
            }
            b'0' => self.pop().map(drop),
            b'1' => {
                let from = self.mark()?;
                self.stack.truncate(from);
                Ok(())
            }
            b'2' => {
                let value = self.top()?;
                self.push(value)
            }
            b'p' | b'g' => {
                let line = self.source.line()?;
                match std::str::from_utf8(line).ok().and_then(|text| text.trim().parse().ok()) {
                    Some(at) if op == b'p' => self.memoize(at),
                    Some(at) => self.recall(at),
                    None => self.corrupt("the number of an object is no number"),
                }
            }
            b'I' | b'L' | b'F' => {
                let line = self.source.line()?;
                match protocol0::number(op, line) {
                    Some(value) => self.push(value),
                    None => self.corrupt("a number is none"),
                }
            }
            b'S' | b'V' => {
                let line = self.source.line()?;
                match if op == b'S' { protocol0::quoted(line) } else { protocol0::unicode(line) } {
                    Some(bytes) => self.latin(bytes),
                    None => self.corrupt("a string has no end or a wrong escape"),
                }
            }
            b'U' | b'T' => {
                let len = if op == b'U' {
                    u64::from(self.source.byte()?)
                } else {
                    u64::from(u32::from_le_bytes(self.source.array()?))
                };
                let bytes = self.source.bytes(len)?.to_vec();
                self.latin(bytes)
            }
            b'C' | b'B' | 0x8e | 0x96 => {
                let len = match op {
                    b'C' => u64::from(self.source.byte()?),
                    b'B' => u64::from(u32::from_le_bytes(self.source.array()?)),
                    _ => u64::from_le_bytes(self.source.array()?),
                };
                self.source.skip(len)?;
                self.push(Value::Opaque)
            }
            0x8f => self.push(Value::Opaque),
            0x90 | 0x91 => {
                let from = self.mark()?;
                self.stack.truncate(from);
                if op == 0x91 {
                    return self.push(Value::Opaque);
                }
                self.top().map(drop)
            }
            _ => self.unknown(op),
        }
    }

    /// What is refused, and what is no pickle at all.
    fn unknown(&mut self, op: u8) -> Result<(), ReadError> {
        let Some(name) = refused(op) else {
            if self.offset == 0 {
                return Err(ReadError::Unrelated(
                    "it is no pickle, plain or gzip; torch.cuda.memory._dump_snapshot(path) writes one".into(),
                ));
            }
            return self.corrupt(format!("{op:#04x} is no opcode of a pickle"));
        };
        let mut what = name.to_owned();
        match op {
            // GLOBAL and INST: module and name, a line each.
            b'c' | b'i' => {
                let module = String::from_utf8_lossy(self.source.line()?).into_owned();
                let global = String::from_utf8_lossy(self.source.line()?).into_owned();
                what = format!("{name} {}.{}", shown(&module), shown(&global));
            }
            0x93 => {
                if let [.., Value::Text(module), Value::Text(global)] = self.stack[..] {
                    let (module, global) = (self.objects.text(module), self.objects.text(global));
                    what = format!("{name} {}.{}", shown(module), shown(global));
                }
            }
            _ => {}
        }
        Err(ReadError::Refused { offset: self.offset, what })
    }
}
