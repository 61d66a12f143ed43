//! Fractal value noise, which makes painted surfaces compress like photographed ones.

use forebay_udfs::hash::{combine, mix64};

/// Octaves of value noise over a picture. Each octave has half the cell size and half the amplitude
/// of the previous octave.
#[derive(Debug)]
pub(super) struct Noise {
    octaves: Vec<Octave>,
}

#[derive(Debug)]
struct Octave {
    /// Values in `-amplitude..amplitude` at the corners of the cells, row by row.
    lattice: Vec<f32>,
    columns: usize,
    per_pixel: f32,
}

impl Noise {
    /// Creates noise for a picture of this size, in pixels; the coarsest cell is `cell` pixels
    /// wide.
    pub(super) fn new(seed: u64, width: u32, height: u32, cell: f32, octaves: u32) -> Self {
        let octave = |i: u32| {
            let cell = (cell / f32::from(1_u16 << i.min(12))).max(1.0);
            let amplitude = 0.5_f32.powi(i as i32 + 1);
            let columns = (width as f32 / cell) as usize + 2;
            let rows = (height as f32 / cell) as usize + 2;
            let base = combine(seed, u64::from(i));
            let lattice = (0..columns * rows)
                .map(|at| {
                    let bits = mix64(base.wrapping_add(at as u64)) >> 40;
                    (bits as f32 / (1 << 23) as f32 - 1.0) * amplitude
                })
                .collect();
            Octave {
                lattice,
                columns,
                per_pixel: 1.0 / cell,
            }
        };
        Self {
            octaves: (0..octaves).map(octave).collect(),
        }
    }

    /// Returns the noise at a pixel, in `-1..1`.
    pub(super) fn at(&self, x: f32, y: f32) -> f32 {
        self.octaves.iter().map(|octave| octave.at(x, y)).sum()
    }
}

impl Octave {
    fn at(&self, x: f32, y: f32) -> f32 {
        let (x, y) = (x * self.per_pixel, y * self.per_pixel);
        let (column, row) = (x as usize, y as usize);
        let (fx, fy) = (smooth(x - column as f32), smooth(y - row as f32));
        let corner = |c: usize, r: usize| {
            self.lattice
                .get(r * self.columns + c)
                .copied()
                .unwrap_or_default()
        };
        let top = lerp(corner(column, row), corner(column + 1, row), fx);
        let bottom = lerp(corner(column, row + 1), corner(column + 1, row + 1), fx);
        lerp(top, bottom, fy)
    }
}

/// Interpolates linearly from `a` (at `t` = 0) to `b` (at `t` = 1).
pub(super) fn lerp(a: f32, b: f32, t: f32) -> f32 {
    a + (b - a) * t
}

fn smooth(t: f32) -> f32 {
    t * t * (3.0 - 2.0 * t)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_bounded_varied_and_follows_its_seed() {
        let noise = Noise::new(1, 64, 48, 16.0, 5);
        let values: Vec<f32> = (0..64 * 48)
            .map(|i| noise.at((i % 64) as f32, (i / 64) as f32))
            .collect();
        assert!(values.iter().all(|v| v.abs() < 1.0));
        let spread = values.iter().fold(f32::MIN, |a, &b| a.max(b))
            - values.iter().fold(f32::MAX, |a, &b| a.min(b));
        assert!(spread > 0.5, "{spread}");
        assert_eq!(
            noise.at(3.0, 4.0),
            Noise::new(1, 64, 48, 16.0, 5).at(3.0, 4.0)
        );
        assert_ne!(
            noise.at(3.0, 4.0),
            Noise::new(2, 64, 48, 16.0, 5).at(3.0, 4.0)
        );
    }
}
