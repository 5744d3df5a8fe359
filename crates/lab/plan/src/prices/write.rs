//! Prices as a file: `prices.toml`.

use catalogue::price::Price;

/// The text of a file of prices, which [`catalogue::price::parse`] reads as these; `remark` comes first, as a comment.
pub fn prices_text(prices: &[Price], remark: &str) -> String {
    let mut text = format!("# {}\n", clean(remark));
    for price in prices {
        let Price { medium, of, value, low, high, unit, basis, dated, source, confidence } = price;
        text += "\n[[price]]\n";
        text += &format!("medium = {}\nof = {}\nvalue = {value:?}\n", quoted(medium), quoted(of));
        for (name, usd) in [("low", low), ("high", high)] {
            if let Some(usd) = usd {
                text += &format!("{name} = {usd:?}\n");
            }
        }
        let (unit, basis) = (unit.text(), basis.text());
        text += &format!("unit = \"{unit}\"\nbasis = \"{basis}\"\ndated = {}\n", quoted(dated));
        text += &format!("source = {}\nconfidence = \"{confidence}\"\n", quoted(source));
    }
    text
}

/// One line, without control characters.
fn clean(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    format!("\"{}\"", clean(text).replace('\\', "\\\\").replace('"', "\\\""))
}
