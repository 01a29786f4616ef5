//! JSON that is passed on unchanged: its original text, and a decoded view for code that evaluates it.
//!
//! A `serde_json::Value` holds integers of 64 bits, doubles and Unicode strings, and each key once. A JSON text can
//! hold more (RFC 8259 sections 4, 6 and 8.2). The platform therefore passes on the text ([`Json`]); schemas, policy
//! and code that runs here read the view, in which numbers are rounded, a lone surrogate is U+FFFD and the last of
//! equal keys counts.
//!
//! Keeps true: a text is on one line, so that it fits an event stream and a line protocol; no text nests deeper than
//! [`MAX_DEPTH`]; changing one part of a view leaves the text of every other part as it was.

mod cursor;
mod first_line;
#[cfg(feature = "testkit")]
pub mod generator;
pub mod held;
mod integers;
mod json;
#[cfg(feature = "testkit")]
pub mod kinds;
mod losses;
mod repeated;

pub use cursor::{Cursor, MAX_DEPTH, Syntax, Text, Value, decode};
pub use first_line::first_line;
pub use integers::{integers, is_integer};
pub use json::{
    Json, Members, elements, first_elements, members, named, raw_option, raw_value, raw_values, string,
    unmarked, write_string,
};
pub use losses::losses;
pub use repeated::repeated;
