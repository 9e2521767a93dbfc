//! Modules and their functions.

use crate::call::{Result, lock};
use crate::config::config;
use crate::context::Context;
use crate::ptx::{self, Entry};
use crate::stream;
use anyaccel_cuda::sys::{
    CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_NOT_FOUND, CUfunction, CUmodule,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A function of a module that is loaded.
pub(crate) struct Function {
    pub(crate) name: String,
    /// `None` for a binary, whose parameters the fake does not read.
    pub(crate) params: Params,
    pub(crate) ordinal: usize,
    /// Most dynamic shared memory.
    pub(crate) shared: AtomicI32,
    loaded: AtomicBool,
}

impl Function {
    /// Loads its code, as a driver that loads lazily does it when it can no longer be put off. That may wait for the device,
    /// so here it does.
    pub(crate) fn load(&self) {
        if !self.loaded.load(Ordering::Acquire) {
            stream::drain(self.ordinal);
            self.loaded.store(true, Ordering::Release);
        }
    }
}

/// Offsets and sizes of parameters, where they are known.
type Params = Option<Vec<(usize, usize)>>;

type Functions = Vec<(CUfunction, Arc<Function>)>;

static MODULES: Mutex<BTreeMap<usize, Functions>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicUsize = AtomicUsize::new(0x0030_0000_0000);

fn next() -> usize {
    NEXT.fetch_add(16, Ordering::Relaxed)
}

/// Loads the text of a PTX or the bytes of a binary; a failure comes with the assembler's log.
pub(crate) fn load(here: Context, image: &[u8]) -> std::result::Result<CUmodule, (u32, String)> {
    let entries: Vec<(String, Params)> = if image.starts_with(b"\x7fELF") {
        sections(image).into_iter().map(|name| (name, None)).collect()
    } else {
        let text = std::str::from_utf8(image).map_err(|_| (CUDA_ERROR_INVALID_IMAGE, String::new()))?;
        let entries = assembled(text, (here.card.major, here.card.minor))?;
        entries.into_iter().map(|Entry { name, params }| (name, Some(params))).collect()
    };
    let functions = entries.into_iter().map(|(name, params)| {
        let function = Function {
            name,
            params,
            ordinal: here.ordinal,
            shared: AtomicI32::new(48 << 10),
            loaded: AtomicBool::new(false),
        };
        (CUfunction(next()), Arc::new(function))
    });
    let module = next();
    lock(&MODULES).insert(module, functions.collect());
    Ok(CUmodule(module))
}

/// What a text assembled to for a kind of card, which the driver keeps, too.
type Assembled = std::result::Result<Vec<Entry>, (u32, String)>;

/// By kind of card and text.
type Kept = BTreeMap<((i32, i32), String), Assembled>;

fn assembled(text: &str, capability: (i32, i32)) -> Assembled {
    static KEPT: Mutex<Kept> = Mutex::new(BTreeMap::new());
    let key = (capability, text.to_owned());
    if let Some(known) = lock(&KEPT).get(&key) {
        return known.clone();
    }
    let made = ptx::assemble(text, config().driver, capability);
    lock(&KEPT).insert(key, made.clone());
    made
}

/// The functions of a binary: its sections `.text.NAME`.
fn sections(image: &[u8]) -> Vec<String> {
    const PREFIX: &[u8] = b".text.";
    let mut names = Vec::new();
    for at in 0..image.len().saturating_sub(PREFIX.len()) {
        if image[at..].starts_with(PREFIX) {
            let name: Vec<u8> = image[at + PREFIX.len()..].iter().copied().take_while(|&byte| byte != 0).collect();
            if let Ok(name) = String::from_utf8(name)
                && !names.contains(&name)
            {
                names.push(name);
            }
        }
    }
    names
}

pub(crate) fn unload(module: CUmodule) -> Result {
    lock(&MODULES).remove(&module.0).map(drop).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

pub(crate) fn find(module: CUmodule, name: &str) -> Result<CUfunction> {
    let modules = lock(&MODULES);
    let functions = modules.get(&module.0).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    let found = functions.iter().find(|(_, function)| function.name == name);
    found.map(|&(handle, _)| handle).ok_or(CUDA_ERROR_NOT_FOUND)
}

pub(crate) fn function(handle: CUfunction) -> Result<Arc<Function>> {
    let modules = lock(&MODULES);
    let mut all = modules.values().flatten();
    all.find(|(other, _)| *other == handle).map(|(_, function)| Arc::clone(function)).ok_or(CUDA_ERROR_INVALID_HANDLE)
}
