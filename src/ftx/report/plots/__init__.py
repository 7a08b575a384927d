"""The plots of a study, a file each. Nothing here touches pyplot or its state.

Every plot is a Figure, or None where there is nothing to draw. Colours are Okabe and Ito's, which people with any
colour vision tell apart; lightness, shape and words say the same again.
"""
