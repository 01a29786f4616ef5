//! Envoy's header map as the ABI serializes it, read in place.
//!
//! Owns the layout (proxy-wasm ABI 0.2.1, "serialized map"): the number of pairs, the two lengths of each, then the
//! names and values, each followed by a zero byte; numbers are 32 bits, little endian. Copying each name and value
//! would cost more than the whole evaluation. Refuses a truncated map and names that are not UTF-8; never panics.

/// Returns the name and value of each header; empty if the map is malformed, and no request without headers passes.
pub fn pairs(map: &[u8]) -> Vec<(&str, &[u8])> {
    read(map).unwrap_or_default()
}

fn read(map: &[u8]) -> Option<Vec<(&str, &[u8])>> {
    let (count, rest) = number(map)?;
    let (lengths, mut texts) = rest.split_at_checked(count.checked_mul(8)?)?;
    let mut pairs = Vec::with_capacity(count);
    for lengths in lengths.chunks_exact(8) {
        let (name_length, lengths) = number(lengths)?;
        let (value_length, _) = number(lengths)?;
        let (name, rest) = text(texts, name_length)?;
        let (value, rest) = text(rest, value_length)?;
        pairs.push((std::str::from_utf8(name).ok()?, value));
        texts = rest;
    }
    Some(pairs)
}

fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((usize::try_from(u32::from_le_bytes(*number)).ok()?, rest))
}

fn text(bytes: &[u8], length: usize) -> Option<(&[u8], &[u8])> {
    let (text, rest) = bytes.split_at_checked(length)?;
    Some((text, rest.strip_prefix(&[0])?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A map as Envoy writes it.
    pub(crate) fn serialized(pairs: &[(&str, &[u8])]) -> Vec<u8> {
        let number = |length: usize| u32::try_from(length).unwrap().to_le_bytes();
        let mut map = number(pairs.len()).to_vec();
        for (name, value) in pairs {
            map.extend([number(name.len()), number(value.len())].concat());
        }
        for (name, value) in pairs {
            map.extend([name.as_bytes(), &[0], value, &[0]].concat());
        }
        map
    }

    #[test]
    fn every_pair_is_read_with_its_bytes_as_they_are() {
        let given: [(&str, &[u8]); 4] =
            [(":path", b"/a"), ("empty", b""), ("raw", b"\xff\0"), (":path", b"/b")];
        assert_eq!(pairs(&serialized(&given)), given);
        assert_eq!(pairs(&serialized(&[])), []);
    }

    #[test]
    fn a_map_cut_anywhere_is_no_map() {
        let map = serialized(&[("name", b"value"), ("x", b"")]);
        for end in 0..map.len() {
            assert_eq!(pairs(&map[..end]), [], "{end}");
        }
    }

    #[test]
    fn lengths_beyond_the_map_and_names_that_are_no_text_are_refused() {
        assert_eq!(pairs(&[0xff; 4]), []);
        assert_eq!(pairs(&[&[0xff; 4][..], &[0xff; 64]].concat()), []);
        let mut map = serialized(&[("name", b"value")]);
        map[12] = 0xff;
        assert_eq!(pairs(&map), []);
    }
}
