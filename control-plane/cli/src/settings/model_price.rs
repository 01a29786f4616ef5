//! The price of model tokens: `IN/OUT` for a million tokens, decimal numbers in the operator's currency.

use asp_call::telemetry::usage::TokenPrice;

/// Digits after the decimal point.
const DIGITS: usize = 6;
/// Maximum digits before it.
const WHOLE_DIGITS: usize = 9;
const FORM: &str =
    "must be IN/OUT: two prices for a million tokens with at most 6 digits after the point, such as 2.5/10";

/// Parses `IN/OUT`.
pub(super) fn parse(text: &str) -> Result<TokenPrice, &'static str> {
    let (input, output) = text.split_once('/').ok_or(FORM)?;
    match (micros(input), micros(output)) {
        (Some(input), Some(output)) => Ok(TokenPrice { input, output }),
        _ => Err(FORM),
    }
}

/// Parses a decimal number; returns its millionths.
fn micros(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits = |text: &str, most: usize| {
        (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if !are_digits(whole, WHOLE_DIGITS) || !are_digits(fraction, DIGITS) {
        return None;
    }
    let fraction: u64 = format!("{fraction:0<DIGITS$}").parse().ok()?;
    Some(whole.parse::<u64>().ok()? * 1_000_000 + fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_two_decimal_numbers() {
        assert_eq!(parse("2.5/10"), Ok(TokenPrice { input: 2_500_000, output: 10_000_000 }));
        assert_eq!(parse("0/0.000001"), Ok(TokenPrice { input: 0, output: 1 }));
        for bad in [
            "",
            "/",
            "1",
            "1/",
            "/1",
            "1/2/3",
            "-1/1",
            "1e3/1",
            ".5/1",
            "1./1",
            "0.1234567/1",
            "1234567890/1",
            "1/ 2",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
