//! Tells whoever waits what is measured now.

pub(crate) fn say(text: &str) {
    eprintln!("bench: {text}");
}
