//! Fits cost coefficients to measurements.

use forebay_planner::optimizer::coefficients::OpCost;

/// One measurement: the time per row, and the numbers of values read and written per row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// Number of values read per row.
    pub(super) read: f64,
    /// Number of values written per row.
    pub(super) written: f64,
    /// Picoseconds per row.
    pub(super) ps: f64,
    /// Uncertainty of `ps`, in picoseconds. If `doubt` exceeds `ps`, the fit divides the error of
    /// this measurement by `doubt` rather than by `ps`.
    pub(super) doubt: f64,
}

impl Measured {
    /// Returns the weight of this measurement's error: the inverse of the larger of `ps` and
    /// `doubt`.
    fn weight(&self) -> f64 {
        1.0 / self.ps.max(self.doubt).max(1.0)
    }
}

/// Fits a cost per row, per value read and per value written by least squares of the relative
/// errors. No term is negative.
///
/// An optimal fit has some of the three terms positive and the others zero, so all seven non-empty
/// subsets of terms are tried. (Lawson and Hanson, Solving Least Squares Problems, chapter 23,
/// solve the problem for any number of terms.)
pub(super) fn fit(measured: &[Measured]) -> OpCost {
    let mut best: Option<(f64, [f64; 3])> = None;
    for mask in 1..8_u8 {
        let Some(terms) = solve(measured, mask) else {
            continue;
        };
        if terms.iter().any(|t| *t < 0.0) {
            continue;
        }
        let error: f64 = measured.iter().map(|m| residual(m, &terms).powi(2)).sum();
        // A later fit must be better by more than rounding errors. Subsets of terms come before
        // their supersets, so a fit does not gain terms that contribute nothing.
        if best.is_none_or(|(least, _)| error < least * 0.999) {
            best = Some((error, terms));
        }
    }
    let [row, read, written] = best.map_or([0.0; 3], |(_, terms)| terms);
    OpCost {
        ps_per_row: row.round() as u64,
        ps_per_value_in: read.round() as u64,
        ps_per_value_out: written.round() as u64,
    }
}

fn features(m: &Measured) -> [f64; 3] {
    [1.0, m.read, m.written].map(|x| x * m.weight())
}

fn residual(m: &Measured, terms: &[f64; 3]) -> f64 {
    let predicted: f64 = features(m).iter().zip(terms).map(|(x, t)| x * t).sum();
    predicted - m.ps * m.weight()
}

/// Solves the least squares problem over the terms in `mask`, by Gaussian elimination with pivoting
/// on the normal equations. Returns `None` if the normal equations have no unique solution.
fn solve(measured: &[Measured], mask: u8) -> Option<[f64; 3]> {
    let used: Vec<usize> = (0..3).filter(|i| mask >> i & 1 == 1).collect();
    let n = used.len();
    let mut rows = vec![vec![0.0; n + 1]; n];
    // Each term is scaled by its largest feature, since the magnitudes of the features differ
    // widely.
    let scale: Vec<f64> = used
        .iter()
        .map(|&i| {
            measured
                .iter()
                .map(|m| features(m)[i])
                .fold(0.0, f64::max)
                .max(1e-300)
        })
        .collect();
    for m in measured {
        let x = features(m);
        let x: Vec<f64> = used.iter().zip(&scale).map(|(&i, s)| x[i] / s).collect();
        for (i, row) in rows.iter_mut().enumerate() {
            for (j, cell) in row.iter_mut().take(n).enumerate() {
                *cell += x[i] * x[j];
            }
            row[n] += x[i] * m.ps * m.weight();
        }
    }
    for column in 0..n {
        let pivot =
            (column..n).max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()))?;
        rows.swap(column, pivot);
        let lead = rows[column][column];
        if lead.abs() < 1e-9 {
            return None;
        }
        let top = rows[column].clone();
        for (index, row) in rows.iter_mut().enumerate() {
            if index != column {
                let factor = row[column] / lead;
                row.iter_mut()
                    .zip(&top)
                    .for_each(|(cell, t)| *cell -= factor * t);
            }
        }
    }
    let mut terms = [0.0; 3];
    for (at, &i) in used.iter().enumerate() {
        terms[i] = rows[at][n] / rows[at][at] / scale[at];
    }
    Some(terms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(cost: [f64; 3], sizes: &[(f64, f64)]) -> Vec<Measured> {
        let of = |&(read, written): &(f64, f64)| Measured {
            read,
            written,
            ps: cost[0] + cost[1] * read + cost[2] * written,
            doubt: 0.0,
        };
        sizes.iter().map(of).collect()
    }

    #[test]
    fn a_cost_is_found_again() {
        let sizes = [(1e3, 1e4), (5e3, 2e4), (1e5, 3e4), (2e5, 9e5)];
        let found = fit(&measured([5e6, 300.0, 40.0], &sizes));
        assert_eq!(found.ps_per_value_in, 300);
        assert_eq!(found.ps_per_value_out, 40);
        assert!(found.ps_per_row.abs_diff(5_000_000) < 1000, "{found:?}");
    }

    #[test]
    fn no_term_is_negative_and_equal_sizes_are_no_trouble() {
        let found = fit(&measured(
            [-5e3, 300.0, 40.0],
            &[(1e3, 1e4), (2e3, 1e4), (9e3, 4e4)],
        ));
        let predicted = |m: &Measured| {
            found.ps_per_row as f64
                + found.ps_per_value_in as f64 * m.read
                + found.ps_per_value_out as f64 * m.written
        };
        for m in measured([-5e3, 300.0, 40.0], &[(1e3, 1e4), (9e3, 4e4)]) {
            assert!((0.9..1.1).contains(&(predicted(&m) / m.ps)), "{found:?}");
        }
        let same = fit(&measured([1e6, 0.0, 10.0], &[(100.0, 1000.0); 3]));
        let total = same.ps_per_row + 100 * same.ps_per_value_in + 1000 * same.ps_per_value_out;
        assert!(total.abs_diff(1_010_000) < 2_000, "{same:?}");
        assert_eq!(fit(&[]), OpCost::default());
    }

    #[test]
    fn what_is_lost_in_noise_does_not_bend_a_fit() {
        let mut seen = measured([0.0, 0.0, 40.0], &[(1e3, 1e4), (1e3, 2e4), (1e3, 9e4)]);
        // The time of this measurement is far below the resolution of the clock.
        seen.push(Measured {
            read: 1e3,
            written: 1e4,
            ps: 1.0,
            doubt: 1e8,
        });
        assert_eq!(fit(&seen).ps_per_value_out, 40);
    }
}
