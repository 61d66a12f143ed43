//! Estimates of rows and bytes: logarithms in whole 1024ths of an octave, so that factors add up to the
//! same sum in every order.

use datafusion::logical_expr::{Expr, Operator};
use forebay_udfs::TensorType;
use forebay_udfs::facts::Algebra;
use forebay_udfs::width::DECODED_PER_ENCODED;

use super::arena::Arena;
use super::facts::PlanFact;
use super::spec::OpSpec;

/// A base-2 logarithm in 1024ths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Log2(pub i32);

impl Log2 {
    /// The logarithm of a whole number; of 0, that of 1.
    pub fn of(number: u64) -> Self {
        Self((libm::log2(number.max(1) as f64) * 1024.0) as i32)
    }

    /// The number, at least 1.
    pub fn number(self) -> u128 {
        libm::exp2(f64::from(self.0.clamp(0, 100 * 1024)) / 1024.0) as u128
    }

    /// Times `factor`, by adding logarithms.
    pub const fn times(self, factor: Self) -> Self {
        Self(self.0.saturating_add(factor.0))
    }

    /// Divided by `factor`.
    pub const fn over(self, factor: Self) -> Self {
        Self(self.0.saturating_sub(factor.0))
    }
}

/// Bytes of a row that an operator reads.
pub(super) fn read_bytes(spec: &OpSpec, input: &PlanFact) -> Log2 {
    let mut read = spec.reads.iter().filter_map(|slot| input.columns.get(slot));
    match (read.next(), read.next()) {
        // Its logarithm as it is: through the number, it would be rounded.
        (Some(only), None) => only.bytes,
        _ => {
            let bytes = input.bytes(spec.reads.iter());
            Log2::of(u64::try_from(bytes).unwrap_or(u64::MAX))
        }
    }
}

/// Bytes of an image whose height and width nobody knows: those of the image that it is made of, as far
/// as its pixels are of the same size. Sizes of pixels are factors, so that they cancel out in any order.
pub(super) fn image_bytes(
    arena: &Arena,
    spec: &OpSpec,
    input: &PlanFact,
    made: &TensorType,
) -> Log2 {
    let pixel = |tensor: &TensorType| Log2::of((tensor.channels * tensor.dtype.bytes()) as u64);
    let read = read_bytes(spec, input);
    let source = spec.reads.iter().find_map(|slot| {
        let column = input.columns.get(slot)?;
        arena.tensor(column.data_type)
    });
    let per_pixel = match source {
        Some(source) => pixel(&source),
        None if spec.algebra == Algebra::Decode => {
            /// Bytes of a pixel of [`DECODED_PER_ENCODED`].
            const COLORS: u64 = 3;
            let decoded = Log2::of(DECODED_PER_ENCODED);
            return read
                .times(decoded)
                .times(pixel(made))
                .over(Log2::of(COLORS));
        }
        None => return read,
    };
    read.times(pixel(made)).over(per_pixel)
}

/// The part of the rows that a predicate keeps, unless a profile says: the fractions of System R
/// (Selinger et al., SIGMOD 1979, table 1).
pub fn selectivity(predicate: &Expr) -> Log2 {
    /// 1/10.
    const EQUAL: Log2 = Log2(-3402);
    /// 1/3.
    const RANGE: Log2 = Log2(-1623);
    /// 1/4.
    const BETWEEN: Log2 = Log2(-2048);
    /// 1/2.
    const OTHER: Log2 = Log2(-1024);
    match predicate {
        Expr::BinaryExpr(binary) => match binary.op {
            Operator::Eq => EQUAL,
            Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => RANGE,
            Operator::And => selectivity(&binary.left).times(selectivity(&binary.right)),
            Operator::NotEq => Log2(-156),
            _ => OTHER,
        },
        Expr::Between(_) => BETWEEN,
        Expr::IsNotNull(_) => Log2(-156),
        Expr::IsNull(_) => EQUAL,
        _ => OTHER,
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
    use datafusion::logical_expr::expr::ScalarFunction;
    use datafusion::logical_expr::lit;

    use super::*;
    use crate::optimizer::facts::{Column, op_fact};
    use crate::optimizer::slots::SlotSet;
    use crate::rows::slot as column;

    /// The estimate of an image after calls over a file of 1000 bytes.
    fn after(calls: &[(&str, &[Expr])]) -> Log2 {
        let mut arena = Arena::default();
        let slot = arena.slot("x");
        let data_type = arena.type_of(&Field::new("x", DataType::Binary, true));
        let file = Column {
            data_type,
            bytes: Log2::of(1000),
            stored: Some(slot),
        };
        let mut fact = PlanFact {
            columns: [(slot, file)].into_iter().collect(),
            rows: Log2::of(1),
            pool: Log2::of(1),
            draws: None,
            unaddressed: None,
        };
        let functions = forebay_udfs::functions();
        for (name, constants) in calls {
            let func = functions.iter().find(|f| f.name() == *name).unwrap();
            let mut args = vec![column("x")];
            args.extend_from_slice(constants);
            let func = std::sync::Arc::clone(func);
            let call = Expr::ScalarFunction(ScalarFunction { func, args });
            let param = arena.row(slot, call, false);
            fact = op_fact(&mut arena, param, &SlotSet::from_iter([slot]), &fact).unwrap();
        }
        fact.columns.get(slot).unwrap().bytes
    }

    #[test]
    fn bytes_of_images_follow_their_pixels() {
        let decode: (&str, &[Expr]) = ("decode_image", &[]);
        let float: (&str, &[Expr]) = ("to_float", &[]);
        let gray: (&str, &[Expr]) = ("grayscale", &[]);
        let decoded = after(&[decode]);
        assert_eq!(decoded, Log2::of(1000).times(Log2::of(DECODED_PER_ENCODED)));
        assert_eq!(after(&[decode, float]), decoded.times(Log2::of(4)));
        let single = decoded.over(Log2::of(3));
        assert_eq!(after(&[decode, gray]), single);
        assert_eq!(after(&[decode, float, gray]), after(&[decode, gray, float]));
        let half = [lit("f16")];
        let halves = after(&[decode, ("to_float", &half), gray]);
        assert_eq!(halves, single.times(Log2::of(2)));
        let luma = [lit("luma")];
        assert_eq!(after(&[("decode_image", &luma)]), single);
    }
}
