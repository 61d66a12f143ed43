//! Draws text with a bitmap font.

use font8x8::UnicodeFonts;
use image::{Rgb, RgbImage};

/// Width of a character in pixels.
const WIDTH: u32 = 8;
/// Height of a character in pixels.
pub(super) const HEIGHT: u32 = 8;

/// Draws text with its upper left corner at `(left, top)`. Only the first line is drawn, and a line
/// wider than `width` pixels is cut and ends in `..`. Characters without a glyph are drawn as `?`.
pub(super) fn draw(
    picture: &mut RgbImage,
    left: u32,
    top: u32,
    width: u32,
    text: &str,
    ink: Rgb<u8>,
) {
    let fit = (width / WIDTH) as usize;
    let line = text.lines().next().unwrap_or_default();
    let cut: String = if line.chars().count() > fit {
        line.chars()
            .take(fit.saturating_sub(2))
            .chain("..".chars())
            .take(fit)
            .collect()
    } else {
        line.to_owned()
    };
    for (i, character) in cut.chars().enumerate() {
        for (y, bits) in glyph(character).into_iter().enumerate() {
            for x in 0..WIDTH {
                // The lowest bit is the leftmost pixel.
                if bits >> x & 1 == 1 {
                    let (x, y) = (left + i as u32 * WIDTH + x, top + y as u32);
                    if let Some(pixel) = picture.get_pixel_mut_checked(x, y) {
                        *pixel = ink;
                    }
                }
            }
        }
    }
}

fn glyph(character: char) -> [u8; 8] {
    font8x8::BASIC_FONTS
        .get(character)
        .or_else(|| font8x8::LATIN_FONTS.get(character))
        .or_else(|| font8x8::GREEK_FONTS.get(character))
        .or_else(|| font8x8::BASIC_FONTS.get('?'))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(text: &str, width: u32) -> RgbImage {
        let mut picture = RgbImage::new(64, 8);
        draw(&mut picture, 0, 0, width, text, Rgb([255; 3]));
        picture
    }

    #[test]
    fn text_is_cut_to_its_width() {
        assert_eq!(drawn("abcdef", 32), drawn("ab..", 64));
        assert_eq!(drawn("abcd", 32), drawn("abcd", 64));
        assert_eq!(drawn("abcd", 8), drawn(".", 64));
        assert_eq!(drawn("ab\ncd", 64), drawn("ab", 64));
        assert_eq!(drawn("\u{4e2d}", 64), drawn("?", 64));
        assert_ne!(drawn("\u{e9}", 64), drawn("?", 64));
        draw(
            &mut RgbImage::new(3, 3),
            0,
            0,
            64,
            "over the edge",
            Rgb([255; 3]),
        );
    }
}
