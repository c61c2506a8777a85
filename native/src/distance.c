// geodesy.py in C, function by function and in the same order of operations: its docstring has the formula and why
// there is no sin() or asin() here. Compiled without contraction, so that no tier fuses what another rounds.

#include "distance.h"

#include <math.h>
#include <stddef.h>

static const double radius = 6371008.8;
static const double pi = 3.141592653589793;
static const double radians_per_degree = 3.141592653589793 / 180.0;

// Coefficients of even powers, highest first. Numerators and denominators are exact, so each is rounded once.
static const double sine[] = {  // times x
    1.0 / 355687428096000.0, -1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0, 1.0 / 362880.0,
    -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0, 1.0 / 1.0,
};

static const double cosine[] = {
    -1.0 / 6402373705728000.0, 1.0 / 20922789888000.0, -1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0,
    1.0 / 40320.0, -1.0 / 720.0, 1.0 / 24.0, -1.0 / 2.0, 1.0 / 1.0,
};

static const double arcsine_series[] = {  // times x
    32247603683100.0 / (281474976710656.0 * 49.0), 8233430727600.0 / (70368744177664.0 * 47.0),
    2104098963720.0 / (17592186044416.0 * 45.0), 538257874440.0 / (4398046511104.0 * 43.0),
    137846528820.0 / (1099511627776.0 * 41.0), 35345263800.0 / (274877906944.0 * 39.0),
    9075135300.0 / (68719476736.0 * 37.0), 2333606220.0 / (17179869184.0 * 35.0), 601080390.0 / (4294967296.0 * 33.0),
    155117520.0 / (1073741824.0 * 31.0), 40116600.0 / (268435456.0 * 29.0), 10400600.0 / (67108864.0 * 27.0),
    2704156.0 / (16777216.0 * 25.0), 705432.0 / (4194304.0 * 23.0), 184756.0 / (1048576.0 * 21.0),
    48620.0 / (262144.0 * 19.0), 12870.0 / (65536.0 * 17.0), 3432.0 / (16384.0 * 15.0), 924.0 / (4096.0 * 13.0),
    252.0 / (1024.0 * 11.0), 70.0 / (256.0 * 9.0), 20.0 / (64.0 * 7.0), 6.0 / (16.0 * 5.0), 2.0 / (4.0 * 3.0),
    1.0 / (1.0 * 1.0),
};

#define POLYNOMIAL(coefficients, x) polynomial(coefficients, sizeof(coefficients) / sizeof((coefficients)[0]), x)

static double polynomial(const double *coefficients, size_t count, double x) {
  double total = 0.0;
  for (size_t i = 0; i < count; i++) total = total * x + coefficients[i];
  return total;
}

static double short_sin(double degrees) {
  double x = degrees * radians_per_degree;
  return x * POLYNOMIAL(sine, x * x);
}

static double short_cos(double degrees) {
  double x = degrees * radians_per_degree;
  return POLYNOMIAL(cosine, x * x);
}

// The sine of an angle in [-90, 90].
static double sin_degrees(double degrees) {
  if (degrees > 45.0) return short_cos(90.0 - degrees);
  if (degrees < -45.0) return -short_cos(90.0 + degrees);
  return short_sin(degrees);
}

// The cosine of an angle in [-90, 90].
static double cos_degrees(double degrees) {
  double size = degrees < 0.0 ? -degrees : degrees;
  return size > 45.0 ? short_sin(90.0 - size) : short_cos(size);
}

// The arc sine of a number in [0, 1], in radians.
static double arcsine(double x) {
  if (x <= 0.5) return x * POLYNOMIAL(arcsine_series, x * x);
  double half = sqrt((1.0 - x) / 2.0);
  return pi / 2.0 - 2.0 * (half * POLYNOMIAL(arcsine_series, half * half));
}

// The same angle in [-180, 180], without rounding.
static double half_circle(double degrees) {
  degrees = fmod(degrees, 360.0);
  if (degrees > 180.0) return degrees - 360.0;
  if (degrees < -180.0) return degrees + 360.0;
  return degrees;
}

// The same place with the latitude in [-90, 90] and the longitude in [-180, 180].
static void fold(double *lat, double *lon) {
  *lat = half_circle(*lat);
  *lon = half_circle(*lon);
  if (*lat >= -90.0 && *lat <= 90.0) return;
  *lat = (*lat > 0.0 ? 180.0 : -180.0) - *lat;
  *lon = *lon > 0.0 ? *lon - 180.0 : *lon + 180.0;
}

// long2 - long1 the short way round; across the antimeridian each is first measured from there.
static double turn(double long1, double long2) {
  double difference = long2 - long1;
  if (difference > 180.0) return (long2 - 180.0) - (long1 + 180.0);
  if (difference < -180.0) return (long2 + 180.0) - (long1 - 180.0);
  return difference;
}

static double sum_of_squares(double across, double cosines, double along) {
  return across * across + cosines * (along * along);
}

double spinney_distance(double lat1, double long1, double lat2, double long2) {
  fold(&lat1, &long1);
  fold(&lat2, &long2);
  double half_long = turn(long1, long2) / 2.0;
  double cosines = cos_degrees(lat1) * cos_degrees(lat2);
  double near = sum_of_squares(sin_degrees((lat2 - lat1) / 2.0), cosines, sin_degrees(half_long));
  if (near <= 0.5) return radius * (2.0 * arcsine(sqrt(near)));
  double far = sum_of_squares(sin_degrees((lat2 + lat1) / 2.0), cosines, cos_degrees(half_long));
  return radius * (pi - 2.0 * arcsine(sqrt(far)));
}
