//! JSON forms of the types, in three dialects.
//!
//! Owns how fields are named, nested and discriminated. Readers are lenient where ProtoJSON's are (both spellings of a name, null
//! for an absent field, numbers in strings, unknown fields and names of enums ignored), and report every other fault with its
//! field. Writers emit no empty member but those that are required.

pub(crate) mod answer;
mod message;
mod part;
mod push;
pub(crate) mod reader;
pub(crate) mod request;
mod task;
mod words;
pub(crate) mod writer;

#[cfg(feature = "grpc")]
pub(crate) use part::{data_of_v03, data_part};

use crate::error::FieldViolation;
use crate::version::Generation;

/// Form of the JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// ProtoJSON of `lf.a2a.v1`: every JSON binding of 1.0.
    V10,
    /// Objects with `kind`: JSON-RPC of 0.3.
    V03,
    /// ProtoJSON of `a2a.v1`: REST of 0.3.
    Proto03,
}

impl Dialect {
    pub(crate) const fn of_jsonrpc(generation: Generation) -> Dialect {
        match generation {
            Generation::V03 => Dialect::V03,
            Generation::V10 => Dialect::V10,
        }
    }

    pub(crate) const fn of_rest(generation: Generation) -> Dialect {
        match generation {
            Generation::V03 => Dialect::Proto03,
            Generation::V10 => Dialect::V10,
        }
    }
}

/// Reads a whole value; all faults are reported together.
pub(crate) fn read_value<T>(
    text: &str,
    read: impl FnOnce(&reader::Object<'_, '_>) -> T,
) -> Result<T, Vec<FieldViolation>> {
    let faults = reader::Faults::default();
    let value = reader::Object::root(text, &faults).map(|object| read(&object));
    faults.finish()?;
    // Without a value there is a fault.
    value.ok_or_else(Vec::new)
}

#[cfg(test)]
mod tests;
