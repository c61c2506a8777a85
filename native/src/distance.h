// distance.h - metres between two places; the formula is published in native/python/spinney/geodesy.py.

#ifndef SPINNEY_DISTANCE_H
#define SPINNEY_DISTANCE_H

// All four in degrees and finite. Gives the same bits as geodesy.distance.
double spinney_distance(double lat1, double long1, double lat2, double long2);

#endif
