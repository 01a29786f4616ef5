//! The trace of a request (W3C Trace Context), so that the client's error, the logs and the audit can be found by one
//! id.
//!
//! Owns: parsing `traceparent`, and the choice of an id if there is none. Refuses: `tracestate`. The received values are
//! passed on unchanged, unless the gateway makes spans of its own. Keeps true: a trace has an id that is not zero, and its text consists
//! of hex digits only, whatever the client sent; at most the first 56 bytes of a header are read.

use std::fmt;

/// Length in bytes of a `traceparent` of version 00 (section 3.2).
const LENGTH: usize = 55;
/// Flags defined by this version: sampled, and that the id is random (level 2, section 3.2.2.5).
const KNOWN_FLAGS: u8 = 0b11;
/// Flag of a recorded trace.
const SAMPLED: u8 = 0b1;

/// Trace of one request, displayed as its id: 32 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    id: u128,
    /// Span of the caller, or one that stands for it.
    parent: u64,
    flags: u8,
    /// Whether the caller sent it.
    is_received: bool,
}

impl Trace {
    /// Returns the trace of a request with these headers, whose names are in lower case: the one in `traceparent`, if
    /// well formed; else the one derived from Envoy's `x-request-id`, so that Envoy's access log has the same id; else
    /// a new one from random bytes.
    pub fn of<N: AsRef<str>, V: AsRef<[u8]>>(headers: &[(N, V)], random: [u8; 24]) -> Trace {
        let only = |name: &str| {
            let mut found = headers.iter().filter(|(known, _)| known.as_ref() == name);
            found.next().filter(|_| found.next().is_none()).map(|(_, value)| value.as_ref().trim_ascii())
        };
        let sent = only("traceparent").and_then(Trace::parse);
        sent.or_else(|| Trace::from_uuid(only("x-request-id")?, random)).unwrap_or_else(|| Trace::new(random))
    }

    /// Creates a trace. Neither of its ids may be zero, which random bytes practically never are.
    pub fn new(random: [u8; 24]) -> Trace {
        let [id @ .., _, _, _, _, _, _, _, _] = random;
        Trace { id: u128::from_be_bytes(id).max(1), parent: span(random), flags: 0, is_received: false }
    }

    /// Parses a well-formed `traceparent` (sections 3.2.2 and 4.3); of a later version, only the part that all versions
    /// begin with.
    pub fn parse(text: &[u8]) -> Option<Trace> {
        let (known, rest) = text.split_at_checked(LENGTH)?;
        let mut parts = known.split(|byte| *byte == b'-');
        let version = hex(parts.next()?, 2)?;
        let id = hex(parts.next()?, 32)?;
        let parent = hex(parts.next()?, 16)?;
        let flags = hex(parts.next()?, 2)?;
        let ends_well = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.first().is_none_or(|byte| *byte == b'-'),
        };
        let is_whole = ends_well && parts.next().is_none() && id != 0 && parent != 0;
        let parent = u64::try_from(parent).ok()?;
        let flags = u8::try_from(flags).ok()? & KNOWN_FLAGS;
        is_whole.then_some(Trace { id, parent, flags, is_received: true })
    }

    /// Returns the corresponding `traceparent`.
    pub fn traceparent(&self) -> String {
        format!("00-{:032x}-{:016x}-{:02x}", self.id, self.parent, self.flags)
    }

    pub fn id(&self) -> u128 {
        self.id
    }

    /// Returns the span of the caller; `None` if it sent none.
    pub fn parent(&self) -> Option<u64> {
        self.is_received.then_some(self.parent)
    }

    /// Whether the caller records the trace.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Returns the trace for what is sent on below a recorded span.
    #[must_use]
    pub fn below(self, span: u64) -> Trace {
        Trace { parent: span, flags: self.flags | SAMPLED, is_received: true, ..self }
    }

    /// Returns the trace whose id consists of the digits of a UUID.
    fn from_uuid(uuid: &[u8], random: [u8; 24]) -> Option<Trace> {
        let [a, b, c, d, e] =
            [(0, 8), (9, 13), (14, 18), (19, 23), (24, 36)].map(|(from, to)| uuid.get(from..to));
        let separated = uuid.len() == 36 && [8, 13, 18, 23].iter().all(|at| uuid.get(*at) == Some(&b'-'));
        let mut digits = [0; 32];
        let parts = a?.iter().chain(b?).chain(c?).chain(d?).chain(e?);
        digits.iter_mut().zip(parts).for_each(|(digit, byte)| *digit = byte.to_ascii_lowercase());
        let id = hex(&digits, 32).filter(|id| separated && *id != 0)?;
        Some(Trace { id, parent: span(random), flags: 0, is_received: false })
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.id)
    }
}

fn span(random: [u8; 24]) -> u64 {
    let [.., a, b, c, d, e, f, g, h] = random;
    u64::from_be_bytes([a, b, c, d, e, f, g, h]).max(1)
}

/// Parses exactly `length` lower-case hex digits, at most 32.
fn hex(digits: &[u8], length: usize) -> Option<u128> {
    let mut value = 0;
    for digit in digits {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        value = (value << 4) | u128::from(digit);
    }
    (digits.len() == length).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0af7651916cd43dd8448eb211c80319c";
    const SENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const RANDOM: [u8; 24] = [0xab; 24];

    fn parsed(text: &str) -> Option<String> {
        Trace::parse(text.as_bytes()).map(|trace| trace.traceparent())
    }

    #[test]
    fn what_is_well_formed_is_taken_and_passed_on_as_it_came() {
        assert_eq!(parsed(SENT).as_deref(), Some(SENT));
        assert_eq!(Trace::parse(SENT.as_bytes()).unwrap().to_string(), ID);
    }

    #[test]
    fn of_a_later_version_the_part_that_all_have_counts() {
        assert_eq!(parsed(&SENT.replacen("00", "cc", 1)).as_deref(), Some(SENT));
        assert_eq!(parsed(&format!("cc{}-what-the-future-will-be-like", &SENT[2..])).as_deref(), Some(SENT));
        assert_eq!(parsed(&format!("cc{}.what", &SENT[2..])), None);
    }

    #[test]
    fn flags_that_have_no_meaning_are_not_passed_on() {
        assert_eq!(parsed(&SENT.replace("-01", "-ff")).as_deref(), Some(SENT.replace("-01", "-03").as_str()));
    }

    #[test]
    fn what_is_malformed_is_none() {
        for text in [
            "",
            "00",
            &SENT.to_uppercase(),
            &SENT[..54],
            &format!("{SENT}-"),
            &format!("{SENT}0"),
            &SENT.replacen("00-", "ff-", 1),
            &SENT.replace(ID, &"0".repeat(32)),
            &SENT.replace("b7ad6b7169203331", &"0".repeat(16)),
            &SENT.replace('-', "_"),
            &SENT.replace("0af", "0a-"),
            &SENT.replace("0af", "+af"),
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
        assert_eq!(Trace::parse(&[0xff; 55]), None);
        assert_eq!(Trace::parse(&vec![b'a'; 1 << 20]), None);
    }

    #[test]
    fn only_a_received_trace_has_a_parent_and_what_is_below_a_span_is_recorded() {
        let sent = Trace::parse(SENT.as_bytes()).unwrap();
        assert_eq!((sent.parent(), sent.is_sampled()), (Some(0xb7ad_6b71_6920_3331), true));
        let own = Trace::new(RANDOM);
        assert_eq!((own.parent(), own.is_sampled()), (None, false));
        assert_eq!(own.below(0xf).traceparent(), format!("00-{}-000000000000000f-01", "ab".repeat(16)));
    }

    #[test]
    fn where_none_came_the_id_of_the_request_or_a_random_one_is_it() {
        let uuid = ("x-request-id", "0AF76519-16cd-43dd-8448-eb211c80319c");
        let named = format!("00-{ID}-abababababababab-00");
        for others in
            [vec![], vec![("traceparent", "bad")], vec![("traceparent", SENT), ("traceparent", SENT)]]
        {
            let headers = [vec![uuid], others].concat();
            assert_eq!(Trace::of(&headers, RANDOM).traceparent(), named, "{headers:?}");
        }
        assert_eq!(Trace::of(&[uuid, ("traceparent", SENT)], RANDOM).traceparent(), SENT);
        for bad in [
            "",
            "0af76519-16cd-43dd-8448-eb211c80319",
            "0af7651916cd43dd8448eb211c80319c0000",
            "00000000-0000-0000-0000-000000000000",
        ] {
            assert_eq!(Trace::of(&[("x-request-id", bad)], RANDOM), Trace::new(RANDOM), "{bad}");
        }
        assert_eq!(Trace::new(RANDOM).to_string(), "ab".repeat(16));
        assert_eq!(parsed(&Trace::new([0; 24]).traceparent()), Some(format!("00-{:032x}-{:016x}-00", 1, 1)));
    }
}
